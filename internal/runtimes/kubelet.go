package runtimes

import (
	"cmp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// kubelet is what is known of the kubelet of a machine.
type kubelet struct {
	there bool // it runs, or is configured
	// socket is of the container runtime that it is configured to use; "" if nothing says
	// which.
	socket string
	by     location         // the file that says so
	fault  *finding.Finding // why a file does not tell
}

// findKubelet finds the kubelet, and the container runtime that it is configured to use
// (kubelet(1), KubeletConfiguration of kubelet.config.k8s.io/v1beta1).
func (c *checker) findKubelet() (k kubelet) {
	args, by, runs := c.kubeletArgs(&k)
	if k.socket = flagValue(args, "container-runtime-endpoint"); k.socket == "" {
		by = cmp.Or(flagValue(args, "config"), "/var/lib/kubelet/config.yaml")
		var config struct {
			Endpoint string `json:"containerRuntimeEndpoint"`
		}
		data, err := c.Read(by, configMax)
		if err == nil {
			err = yaml.Unmarshal(data, &config)
		}
		k.cannotRead(c.whole(by), err)
		k.socket = config.Endpoint
	}
	k.socket = strings.TrimPrefix(k.socket, "unix://")
	k.there = runs || k.socket != "" || c.Exists(by)
	k.by = c.whole(by)
	return k
}

// cannotRead notes why a file does not tell what the kubelet uses. One that is not there
// sets nothing.
func (k *kubelet) cannotRead(file location, err error) {
	if err != nil && !host.IsAbsent(err) && k.fault == nil {
		k.fault = unreadable(file, "it does not tell which runtime the kubelet uses: ", err)
	}
}

// kubeletUses reports whether the kubelet uses the runtime behind a socket. Without a
// setting it uses containerd's usual one.
func (c *checker) kubeletUses(socket string) bool {
	k := c.kubelet()
	return k.there && c.Same(cmp.Or(k.socket, containerdSocket), socket)
}

// usedByKubelet reports whether the kubelet uses a containerd. That of k3s is a part of
// k3s's process, and so no process of its own.
func (c *checker) usedByKubelet(inst installation) bool {
	return c.kubeletUses(inst.socket) || inst.distribution == k3s().distribution && !c.kubelet().there
}

// kubeletArgs are the arguments of a running kubelet, or else those of its unit or those
// that kubeadm has it started with, and the file that they are from.
func (c *checker) kubeletArgs(k *kubelet) (args []string, by string, runs bool) {
	cmd := c.commandOf("kubelet.service", nil, "kubelet", "kubelite")
	k.fault = cmd.fault
	if file := flagValue(cmd.args, "kubelet-args-file"); file != "" { // kubelite, of MicroK8s
		data, err := c.Read(file, configMax)
		k.cannotRead(c.whole(file), err)
		// The directories that a snap's arguments speak of (snapcraft, environment variables).
		paths := strings.NewReplacer("${SNAP_COMMON}", "/var/snap/microk8s/common", "${SNAP_DATA}", "/var/snap/microk8s/current")
		return words(paths.Replace(string(data)), false), file, cmd.runs
	}
	if len(cmd.args) > 0 {
		return cmd.args, cmd.by, cmd.runs
	}
	const file = "/var/lib/kubelet/kubeadm-flags.env"
	data, err := c.Read(file, configMax)
	k.cannotRead(c.whole(file), err)
	env := map[string]string{}
	assign(env, environmentLines(string(data)))
	return words(env["KUBELET_KUBEADM_ARGS"], false), file, false
}

// flagValue is the value of some flags that mean the same, the one that is given last; ""
// without one.
func flagValue(args []string, names ...string) string {
	all := flagValues(args, names...)
	return append([]string{""}, all...)[len(all)]
}

// flagValues are the values of all flags of some names. That of a last one without a
// value is "".
func flagValues(args []string, names ...string) (values []string) {
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || !slices.Contains(names, name):
		case joined:
			values = append(values, value)
		default:
			values = append(values, strings.Join(args[i+1:min(i+2, len(args))], ""))
		}
	}
	return values
}
