package doctor

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

const plugins = "/var/lib/kubelet/device-plugins"

// confined is the check of a machine whose files have some labels, by the ends of their paths.
func confined(root host.Root, labels map[string]string) Check {
	return Confined(Confinement{Root: root, Scan: one(), PluginDir: plugins, Label: func(file string) (string, error) {
		for end, label := range labels {
			if strings.HasSuffix(file, end) {
				if label == "denied" {
					return "", &fs.PathError{Op: "getxattr", Path: file, Err: fs.ErrPermission}
				}
				return "system_u:object_r:" + label + ":s0", nil
			}
		}
		return "", nil
	}})
}

// TestSELinux: what a policy of containers is known to deny is found, and only while it enforces.
func TestSELinux(t *testing.T) {
	wants(t, "no SELinux", confined(tree(t, nil), nil), Absent, "neither SELinux nor AppArmor")
	files := map[string]string{"/sys/fs/selinux/enforce": "1", "/sys/fs/selinux/booleans/container_use_devices": "0 0\n"}
	enforcing := tree(t, files)
	wants(t, "a device's own label", confined(enforcing, map[string]string{"/dev/ha0": "device_t"}), Warned,
		"selinux-denies", "/dev/ha0 (device_t)", "setsebool -P container_use_devices on")
	wants(t, "the label of containers", confined(enforcing, map[string]string{"/dev/ha0": "container_file_t"}), Well, "SELinux enforces")
	wants(t, "a label that cannot be seen", confined(enforcing, map[string]string{"/dev/ha0": "denied"}), Unknown,
		"the label of /dev/ha0", "permission denied", "run it as root")

	serve := map[string]string{
		"/proc/7/comm": "lpuctl\n", "/proc/7/cmdline": "lpuctl\x00serve\x00",
		"/proc/7/attr/current": "system_u:system_r:container_t:s0:c1,c2\x00",
	}
	put(t, enforcing, serve)
	dir := map[string]string{plugins: "kubelet_var_lib_t", "/dev/ha0": "container_file_t"}
	wants(t, "the plugin as any container", confined(enforcing, dir), Broken, "lpuctl serve", "may not make its socket",
		"container_device_plugin_t")
	put(t, enforcing, map[string]string{"/proc/7/attr/current": "system_u:system_r:container_device_plugin_t:s0\x00"})
	wants(t, "the plugin with its own type", confined(enforcing, dir), Well)

	files["/sys/fs/selinux/enforce"] = "0"
	wants(t, "permissive", confined(tree(t, files), map[string]string{"/dev/ha0": "device_t"}), Well, "permissive")
	files["/sys/fs/selinux/enforce"], files["/sys/fs/selinux/booleans/container_use_devices"] = "1", "1 1\n"
	wants(t, "the boolean is on", confined(tree(t, files), map[string]string{"/dev/ha0": "device_t"}), Well)
}

// TestAppArmor: a profile that is loaded and denies a device file is named, with its file; which are loaded only root sees.
func TestAppArmor(t *testing.T) {
	const profile = `#include <tunables/global>
profile strict-container flags=(attach_disconnected) {
  file,
  deny /sys/[^f]*/** wklx,
  audit deny /dev/{ha,lpu}[0-9]* rw,
}
`
	files := map[string]string{
		"/sys/module/apparmor/parameters/enabled": "Y\n", "/etc/apparmor.d/strict": profile,
		"/sys/kernel/security/apparmor/profiles": "/usr/bin/man (enforce)\nstrict-container (enforce)\n",
	}
	wants(t, "a profile that denies", confined(tree(t, files), nil), Warned,
		"apparmor-denies", "strict-container", "it denies /dev/ha0", "apparmor_parser -r /etc/apparmor.d/strict")
	files["/sys/kernel/security/apparmor/profiles"] = "strict-container (complain)\n"
	wants(t, "it only complains", confined(tree(t, files), nil), Well, "AppArmor is on")
	delete(files, "/sys/kernel/security/apparmor/profiles")
	wants(t, "who is not root", confined(tree(t, files), nil), Unknown, "whether AppArmor enforces strict-container", "run it as root")
	files["/etc/apparmor.d/strict"] = strings.ReplaceAll(profile, "{ha,lpu}", "{nvidia,lpu}")
	wants(t, "another device", confined(tree(t, files), nil), Well)
}

// TestDenyRules: rules of AppArmor are read as its parser does.
func TestDenyRules(t *testing.T) {
	for rule, denies := range map[string]bool{
		"deny /dev/ha0 rw,": true, "deny /dev/** w,": true, "deny /dev/* r,": true, "deny /dev/ha? rw,": true,
		"  audit deny /dev/ha[0-3] rwk,": true,
		`deny "/dev/ha0" rw,`:            true, "deny /dev/ha0 x,": false, "deny /dev/ha rw,": false, "/dev/ha0 rw,": false,
		"# deny /dev/ha0 rw,": false,
		"deny /*/ha0 rw,":     true, "deny /* rw,": false, "deny @{dev}/ha0 rw,": false, "deny owner /dev/ha0 rw,": true,
	} {
		if got := deniedBy("profile x {\n"+rule+"\n}\n", []string{"/dev/ha0"}); (len(got) == 1) != denies {
			t.Errorf("%s: %v", rule, got)
		}
	}
}

// TestNoInventory: a machine that cannot be scanned is no reason for SELinux to deny something.
func TestNoInventory(t *testing.T) {
	root := tree(t, map[string]string{"/sys/fs/selinux/enforce": "1", "/sys/fs/selinux/booleans/container_use_devices": "0 0\n"})
	scan := func(context.Context) (*discovery.Inventory, error) { return nil, fs.ErrPermission }
	s := wants(t, "no scan", Confined(Confinement{Root: root, Scan: scan, PluginDir: plugins}), Well)
	if s.Findings.Has(finding.SELinuxDenies) {
		t.Error(ids(s.Findings))
	}
}
