// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for an LPU's driver, for the guest of test/vm/lab. It has what faults need that a generic driver cannot show: an attribute
 * that hangs, handlers of PCI errors, runtime power management. It drives any function whose ids are written to new_id. Each gets a
 * node /dev/lpuN, but for a management function, of which only the handlers matter.
 */
#include <linux/cdev.h>
#include <linux/delay.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>

#define MANAGEMENT 0x505c
#define MOST 256

struct lpu {
	int number; /* of the node; -1: none */
	int ready, hang;
};

static struct class *lpu_class;
static dev_t first_node;
static struct cdev nodes;
static DEFINE_IDA(numbers);

/* Attributes that tests write. ready is one of XRT's driver. */
#define ATTRIBUTE(name)                                                                                          \
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf)                 \
	{                                                                                                        \
		return sysfs_emit(buf, "%d\n", ((struct lpu *)dev_get_drvdata(dev))->name);                      \
	}                                                                                                        \
	static ssize_t name##_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t n) \
	{                                                                                                        \
		return kstrtoint(buf, 0, &((struct lpu *)dev_get_drvdata(dev))->name) ? -EINVAL : n;             \
	}                                                                                                        \
	static DEVICE_ATTR_RW(name)
ATTRIBUTE(ready);
ATTRIBUTE(hang);

static bool let_go;
module_param(let_go, bool, 0644);
MODULE_PARM_DESC(let_go, "no read hangs any longer, also of a function that loses its driver");

/* A read of VBNV, the name of the shell, hangs until let_go; a process that waits for it can be killed. */
static ssize_t VBNV_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lpu *lpu = dev_get_drvdata(dev);

	while (READ_ONCE(lpu->hang) && !READ_ONCE(let_go) && !fatal_signal_pending(current))
		schedule_timeout_killable(HZ / 20);
	return sysfs_emit(buf, "lpu_sim\n");
}
static DEVICE_ATTR_RO(VBNV);

static struct attribute *own[] = { &dev_attr_ready.attr, &dev_attr_hang.attr, NULL };
static struct attribute *of_rom[] = { &dev_attr_VBNV.attr, NULL };
static const struct attribute_group own_group = { .attrs = own }, rom_group = { .name = "rom.u.0", .attrs = of_rom };
static const struct attribute_group *groups[] = { &own_group, &rom_group, NULL };

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lpu *lpu = devm_kzalloc(&pdev->dev, sizeof(*lpu), GFP_KERNEL);
	int err = lpu ? pcim_enable_device(pdev) : -ENOMEM;

	if (err)
		return err;
	pci_set_drvdata(pdev, lpu);
	err = device_add_groups(&pdev->dev, groups);
	if (err)
		return err;
	pci_save_state(pdev); /* what slot_reset brings back */
	lpu->ready = 1;
	lpu->number = -1;
	if (pdev->device != MANAGEMENT) {
		lpu->number = ida_alloc_max(&numbers, MOST - 1, GFP_KERNEL);
		device_create(lpu_class, &pdev->dev, first_node + lpu->number, NULL, "lpu%d", lpu->number);
	}
	pm_runtime_put_noidle(&pdev->dev); /* power/control is "on" until somebody writes "auto" */
	return 0;
}

static void remove(struct pci_dev *pdev)
{
	struct lpu *lpu = pci_get_drvdata(pdev);

	pm_runtime_get_noresume(&pdev->dev);
	if (lpu->number >= 0) {
		device_destroy(lpu_class, first_node + lpu->number);
		ida_free(&numbers, lpu->number);
	}
	device_remove_groups(&pdev->dev, groups); /* waits for who reads an attribute */
}

static pci_ers_result_t error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	return state == pci_channel_io_normal ? PCI_ERS_RESULT_CAN_RECOVER : PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t mmio_enabled(struct pci_dev *pdev)
{
	return PCI_ERS_RESULT_RECOVERED;
}

static pci_ers_result_t slot_reset(struct pci_dev *pdev)
{
	pci_restore_state(pdev);
	pci_save_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

static const struct pci_error_handlers handlers = {
	.error_detected = error_detected, .mmio_enabled = mmio_enabled, .slot_reset = slot_reset,
};

static int sleep_or_wake(struct device *dev)
{
	return 0;
}
static const struct dev_pm_ops power = { SET_RUNTIME_PM_OPS(sleep_or_wake, sleep_or_wake, NULL) };

static struct pci_driver driver = {
	.name = "lpu_sim", .probe = probe, .remove = remove, .err_handler = &handlers, .driver.pm = &power,
};

static const struct file_operations operations = { .owner = THIS_MODULE };

static int __init lpu_sim_init(void)
{
	int err = alloc_chrdev_region(&first_node, 0, MOST, "lpu");

	if (err)
		return err;
	cdev_init(&nodes, &operations);
	err = cdev_add(&nodes, first_node, MOST);
	lpu_class = class_create(THIS_MODULE, "lpu");
	return err ? err : pci_register_driver(&driver);
}
module_init(lpu_sim_init);
MODULE_LICENSE("GPL");
MODULE_VERSION("1.0");
