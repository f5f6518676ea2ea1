package launch

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Site is where something is launched: a node and its spec.
type Site struct {
	Root   host.Root
	Spec   cdi.File // in place
	Kind   string   // of the CDI devices
	Env    func(name string) (value string, set bool)
	Log    *slog.Logger
	Say    func(format string, args ...any) // tells people
	Report func(finding.List)
}

// Explain says how a container is given LPUs: by the device that covers them, or by a
// device for each and the variables that describe them as a whole.
func (s *Site) Explain(inv *discovery.Inventory, names []string) (*cdi.Explanation, error) {
	o := cdi.Options{Kind: s.Kind}
	e, err := cdi.Explain(inv, o, names)
	if err == nil && !s.bringsTable(e) {
		e, err = cdi.Apart(inv, o, names)
	}
	if err == nil && len(e.Collisions) > 0 && slices.Equal(e.Use, e.Devices) {
		return nil, refuse(NoWayAround, "%s cannot be combined: %s", strings.Join(names, " "), CollisionText(e))
	}
	return e, err
}

// bringsTable reports whether the device to use brings the ring table of its LPUs by the
// spec in place, which may be that of other cables, or of a time when tables could not be
// written.
func (s *Site) bringsTable(e *cdi.Explanation) bool {
	if e.Wanted == nil || e.UseTable != nil || len(e.Use) != 1 {
		return true
	}
	data, err := s.Spec.Read()
	_, name, _ := strings.Cut(e.Use[0], "=")
	return err != nil || cdi.BringsTable(data, name, e.Wanted)
}

// NoWayAround is what to do about devices of which each sets a variable in its own way.
const NoWayAround = "no device avoids it: give the models of these LPUs one value (models in the config file)"

// CollisionText says of each variable that collides which device sets what.
func CollisionText(e *cdi.Explanation) string {
	var variables []string
	for _, c := range e.Collisions {
		var values []string
		for _, v := range c.Values {
			values = append(values, v.Device+" sets "+v.Value)
		}
		if missesSome(c) {
			values = append(values, "which is not every LPU of the container")
		}
		variables = append(variables, c.Variable+" ("+strings.Join(values, ", ")+")")
	}
	text := "of each variable the container gets the last value: " + strings.Join(variables, ", ")
	if e.WrongTable {
		text += "; " + TableText(e)
	}
	return text
}

// TableText says which ring table a container reads with devices that are combined.
func TableText(e *cdi.Explanation) string {
	if e.Table == nil {
		return "a program in the container reads the host's ring table, which counts LPUs in another way"
	}
	return "a program in the container reads the ring table of " + strings.Join(e.Table.LPUs, " ") + " only"
}

// missesSome tells that the values of a variable do not differ: what is wrong is that its
// list is too short.
func missesSome(c cdi.Collision) bool {
	return !slices.ContainsFunc(c.Values, func(v cdi.SetByValue) bool { return v.Value != c.Values[0].Value })
}

// Arguments returns the devices to use, the variables to set and the ring table to mount, as
// options of a runtime. The table is in place then.
func (s *Site) Arguments(e *cdi.Explanation) (options []string) {
	for _, d := range e.Use {
		options = append(options, "--device", d)
	}
	for _, v := range e.UseEnv {
		options = append(options, "--env", v.String())
	}
	if e.UseTable == nil {
		return options
	}
	file, err := s.putTable(e.UseTable)
	if err != nil {
		s.Log.Warn("the container gets no ring table of its own, and may read the host's, which counts LPUs in another way", "error", err)
		return options
	}
	// The ring table of an ordinary user is not made again after a boot.
	if err := e.UseTable.Keep(s.Root); err != nil && !errors.Is(err, fs.ErrPermission) {
		s.Log.Warn("the ring table of the container is not made again after a boot", "error", err)
	}
	return append(options, "--volume", file+":"+e.UseTable.ContainerPath+":ro")
}

// putTable puts a ring table in place, and returns where it is. A user who may not write
// where the tables of the node are has it in a directory of his own.
func (s *Site) putTable(t *cdi.RingTable) (file string, err error) {
	err = t.Write(s.Root)
	forbidden := errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
	if own, _ := s.Env("XDG_RUNTIME_DIR"); forbidden && s.Root == "/" && filepath.IsAbs(own) {
		return t.WriteIn(filepath.Join(own, "lpuctl"))
	}
	if err == nil {
		file, err = absolute(s.Root, t.HostPath)
	}
	return file, err
}
