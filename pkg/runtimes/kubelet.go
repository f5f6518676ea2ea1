package runtimes

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubelet is what is known of the kubelet of a machine.
type kubelet struct {
	there  bool   // it runs, or is configured
	socket string // of the container runtime that it is configured to use; "" if nothing says which
	by     string // the file that says so
}

// findKubelet finds the kubelet, and the container runtime that it is configured to use (kubelet(1), KubeletConfiguration of
// kubelet.config.k8s.io/v1beta1).
func (c *checker) findKubelet() (k kubelet) {
	args, by, runs := c.kubeletArgs()
	if k.socket = flagValue(args, "container-runtime-endpoint"); k.socket == "" {
		by = cmp.Or(flagValue(args, "config"), "/var/lib/kubelet/config.yaml")
		var config struct {
			Endpoint string `json:"containerRuntimeEndpoint"`
		}
		data, _ := c.Read(by, configMax)
		_ = yaml.Unmarshal(data, &config) // what cannot be read sets nothing
		k.socket = config.Endpoint
	}
	k.socket = strings.TrimPrefix(k.socket, "unix://")
	k.there = runs || k.socket != "" || c.Exists(by)
	k.by = c.Shown(by)
	return k
}

// uses tells whether the kubelet uses the runtime behind a socket. Without a setting it uses containerd's usual one.
func (k kubelet) uses(c *checker, socket string) bool {
	return k.there && c.Same(cmp.Or(k.socket, containerdSocket), socket)
}

// usedByKubelet tells whether the kubelet uses a containerd. That of k3s is a part of k3s's process, and so no process of its own.
func (c *checker) usedByKubelet(inst installation) bool {
	return c.kubelet().uses(c, inst.socket) || inst.distribution == k3s().distribution && !c.kubelet().there
}

// kubeletArgs are the arguments of a running kubelet, or else those that kubeadm has it started with, and the file that
// they are from.
func (c *checker) kubeletArgs() (args []string, by string, runs bool) {
	names, _ := c.Glob("/proc/[0-9]*/comm")
	for _, name := range names { // comm can be read even of a process that hangs
		comm, _ := c.Read(name, configMax)
		if string(comm) != "kubelet\n" && string(comm) != "kubelite\n" {
			continue
		}
		by = path.Join(path.Dir(name), "cmdline")
		cmdline, err := c.Read(by, configMax)
		if err != nil {
			continue
		}
		args = strings.Split(string(cmdline), "\x00")
		if file := flagValue(args, "kubelet-args-file"); file != "" { // kubelite, of MicroK8s
			data, _ := c.Read(file, configMax)
			return strings.Fields(snapPaths(string(data))), file, true
		}
		return args, by, true
	}
	const file = "/var/lib/kubelet/kubeadm-flags.env"
	data, _ := c.Read(file, configMax)
	return strings.Fields(strings.NewReplacer(`"`, " ", "'", " ").Replace(string(data))), file, false
}

// snapPaths fills in the directories that a snap's arguments speak of (snapcraft, environment variables).
func snapPaths(text string) string {
	return strings.NewReplacer("${SNAP_COMMON}", "/var/snap/microk8s/common", "${SNAP_DATA}", "/var/snap/microk8s/current").Replace(text)
}

// flagValue is the value of the first of some flags that is given; "" without one.
func flagValue(args []string, names ...string) string {
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || !slices.Contains(names, name):
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}
