package runtimes

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubeletSocket is the socket of the container runtime that the kubelet is configured to use (kubelet(1), KubeletConfiguration
// of kubelet.config.k8s.io/v1beta1), and the file with that setting; "" without one.
func (c *checker) kubeletSocket() (socket, by string) {
	args, by := c.kubeletArgs()
	if socket = flagValue(args, "container-runtime-endpoint"); socket == "" {
		by = cmp.Or(flagValue(args, "config"), "/var/lib/kubelet/config.yaml")
		var config struct {
			Endpoint string `json:"containerRuntimeEndpoint"`
		}
		data, _ := c.Read(by, configMax)
		_ = yaml.Unmarshal(data, &config) // what cannot be read sets nothing
		socket = config.Endpoint
	}
	return strings.TrimPrefix(socket, "unix://"), c.Shown(by)
}

// kubeletArgs are the arguments of a running kubelet, or else those that kubeadm has it started with, and the file that
// they are from.
func (c *checker) kubeletArgs() (args []string, by string) {
	names, _ := c.Glob("/proc/[0-9]*/comm")
	for _, name := range names { // comm can be read even of a process that hangs
		if comm, _ := c.Read(name, configMax); string(comm) != "kubelet\n" {
			continue
		}
		by = path.Join(path.Dir(name), "cmdline")
		if cmdline, err := c.Read(by, configMax); err == nil {
			return strings.Split(string(cmdline), "\x00"), by
		}
	}
	const file = "/var/lib/kubelet/kubeadm-flags.env"
	data, _ := c.Read(file, configMax)
	return strings.Fields(strings.NewReplacer(`"`, " ", "'", " ").Replace(string(data))), file
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
