package launch

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Plan is what a job does, and the document of --dry-run.
type Plan struct {
	statefile.Header
	LPUs      []string `json:"lpus"` // in ring order
	Connected *bool    `json:"connected,omitempty"`
	Device    string   `json:"device,omitempty"` // qualified CDI name of exactly these LPUs
	Isolated  bool     `json:"isolated"`
	Hidden    []string `json:"hidden"` // nodes that the command cannot open
	Env       []string `json:"env"`    // variables that a plain program gets
	Command   []string `json:"command"`

	dev    string // where the nodes are
	covers []isolate.Cover
}

// isolates reports whether the command cannot open the nodes of other LPUs. A container
// sees its own by itself.
func (j *Job) isolates() bool { return !j.NoIsolation && !j.startsContainer() }

// plan says what is to be executed, how, and with which variables.
func (j *Job) plan(g *grant, held *heldLease, image imageEnv) (*Plan, error) {
	e, err := j.Explain(g.inv, g.lpus)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Header: statefile.NewHeader("Run"), LPUs: g.lpus, Connected: g.connected, Hidden: []string{}, Env: []string{}}
	if len(e.Use) == 1 && len(e.UseEnv) == 0 {
		plan.Device = e.Use[0]
	}
	if j.startsContainer() {
		err := plan.replace(j.Args, j.containerOptions(g, held, image, e))
		return plan, err
	}
	plan.Command = j.Args
	used, err := cdi.Explain(g.inv, cdi.Options{Kind: j.Kind}, e.Use)
	if err != nil {
		return nil, err
	}
	plan.Env = j.variables(used.Env, e.UseEnv)
	if !j.isolates() {
		return plan, nil
	}
	plan.Isolated = true
	plan.covers = j.coverTable(cmp.Or(e.UseTable, used.Table))
	return plan, hideOthers(j.Root, g, plan)
}

// coverTable makes an isolated program read the ring table of its LPUs, where the host
// has one: the program sees no others, and so counts them as in a container.
func (j *Job) coverTable(t *cdi.RingTable) []isolate.Cover {
	if t == nil || !j.Root.Exists(t.ContainerPath) {
		return nil
	}
	file, err := j.putTable(t)
	path, pathErr := absolute(j.Root, t.ContainerPath)
	if err = cmp.Or(err, pathErr); err != nil {
		j.Log.Warn("the command reads the host's ring table, which counts LPUs in another way", "error", err)
		return nil
	}
	return []isolate.Cover{{File: file, Path: path}}
}

// replace makes the command of arguments in which some stand for the options of a
// runtime, or for the device.
func (plan *Plan) replace(args, options []string) error {
	for i, arg := range args {
		switch {
		case i == 0 || arg != "{args}" && arg != "{}":
			plan.Command = append(plan.Command, arg)
		case arg == "{args}":
			plan.Command = append(plan.Command, options...)
		case plan.Device == "":
			return refuse("write {args} in place of it, and of the option before it", "no single CDI device covers %s for {}",
				strings.Join(plan.LPUs, " "))
		default:
			plan.Command = append(plan.Command, plan.Device)
		}
	}
	return nil
}

// variables are those that a container gets, as NAME=VALUE. A LD_LIBRARY_PATH that is set
// already stays.
func (j *Job) variables(used, more []cdi.Variable) []string {
	list := []string{}
	for _, v := range slices.Concat(used, more) {
		if _, set := j.Env(v.Name); !set || v.Name != libraryPath {
			list = append(list, v.String())
		}
	}
	return list
}

// withVariables is an environment with some variables set again.
func withVariables(environment, variables []string) []string {
	for _, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		environment = slices.DeleteFunc(environment, func(have string) bool { return strings.HasPrefix(have, name+"=") })
	}
	return append(environment, variables...)
}

// hideOthers finds the nodes of all LPUs that the command does not get, and of their
// management functions: by the kernel's numbers, whatever they are named, and by the
// names that are known.
func hideOthers(root host.Root, g *grant, plan *Plan) error {
	functions := map[pci.Address]bool{}
	var known []discovery.Node
	for _, l := range g.inv.LPUs {
		if slices.Contains(g.lpus, l.Name) {
			continue
		}
		functions[l.Address] = true
		known = append(known, l.Nodes...)
		if l.Management != nil {
			functions[l.Management.Address] = true
		}
	}
	numbers, err := discovery.DeviceNumbers(string(root), functions)
	if err != nil {
		return err
	}
	if plan.dev, err = absolute(root, "/dev"); err != nil {
		return err
	}
	hidden, err := isolate.Nodes(plan.dev, numbers)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range known {
		if path, err := absolute(root, n.Path); err == nil && root.Exists(n.Path) && !slices.Contains(hidden, path) {
			hidden = append(hidden, path)
		}
	}
	plan.Hidden = append(plan.Hidden, hidden...)
	return nil
}

// absolute is where a path of the root really is on this machine.
func absolute(root host.Root, p string) (string, error) {
	real, err := root.Resolve(p)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}

// find is the executable file of a command, as a shell finds it.
func (j *Job) find(command string) (string, error) {
	path, err := exec.LookPath(command)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, exec.ErrNotFound) {
		dirs, _ := j.Env("PATH")
		for _, dir := range filepath.SplitList(dirs) {
			if st, statErr := os.Stat(filepath.Join(dir, command)); statErr == nil && st.Mode().IsRegular() {
				err = fs.ErrPermission
			}
		}
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return "", &isolate.ExecError{Path: command, Err: err}
}
