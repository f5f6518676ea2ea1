package cdi

import (
	"fmt"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func (v *Validator) checkMount(d *document, at string, m *specs.Mount) {
	if _, err := v.stat(m.HostPath); err != nil {
		d.add(finding.MountMissing, at, missing(m.HostPath, err), "install what provides it, or write the spec without it: "+d.renewal)
		return
	}
	if path.Dir(m.HostPath) != RingTableDir {
		return
	}
	if !isWhole(v.Root, m.HostPath) {
		d.add(finding.RingTableBroken, at, m.HostPath+" does not say what a ring table of this name says", d.renewal)
	}
}

func (v *Validator) checkHook(d *document, at string, h *specs.Hook) {
	st, err := v.stat(h.Path)
	switch {
	case err != nil:
		d.add(finding.HookMissing, at, missing(h.Path, err), "")
	case st.Mode&0o111 == 0 || st.Mode&unix.S_IFMT != unix.S_IFREG:
		d.add(finding.HookMissing, at, h.Path+" is no program that can be run: the container does not start", "")
	}
}

func missing(path string, err error) string {
	return fmt.Sprintf("%s: %v: the container does not start", path, host.Reason(err))
}

// checkNode looks at a device node and does not open it.
func (v *Validator) checkNode(d *document, at string, n *specs.DeviceNode) {
	if !v.seesDev() {
		return
	}
	path := hostPath(n)
	real, st, err := v.lstat(path)
	if discovery.HiddenNode(real, err == nil) {
		return // as one that cannot be seen
	}
	if err != nil {
		d.add(finding.NodeMissing, at, missing(path, err), d.renewal)
		return
	}
	kind := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b"}[st.Mode&unix.S_IFMT]
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	const twoNumbers = "it says %s is %d:%d, and it is %d:%d: the container gets another device, or none"
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		d.add(finding.NodeNotDevice, at, path+" is a symbolic link, which runtimes do not follow", d.renewal)
	case kind == "":
		d.add(finding.NodeNotDevice, at, path+" is not a device node", "see what made the file; then: "+d.renewal)
	case (n.Major != 0 || n.Minor != 0) && (n.Major != major || n.Minor != minor):
		d.add(finding.NodeNumbers, at, fmt.Sprintf(twoNumbers, path, n.Major, n.Minor, major, minor), d.renewal)
	case n.Type != "" && n.Type != kind && n.Type != "u":
		message := fmt.Sprintf("it says %s is of type %q, and it is of type %q", path, n.Type, kind)
		d.add(finding.NodeNumbers, at, message, d.renewal)
	}
}

// seesDev reports whether the device nodes of the machine can be seen.
func (v *Validator) seesDev() bool {
	dev, err := v.stat("/dev")
	return err == nil && dev.Mode&unix.S_IFMT == unix.S_IFDIR
}

// stat looks at a path of the host, as a runtime would find it: links are followed,
// within the root.
func (v *Validator) stat(path string) (st unix.Stat_t, err error) {
	real, err := v.Root.Resolve(path)
	if err == nil {
		err = host.Lstat(real, &st)
	}
	return st, err
}

// lstat is stat for a path whose last element may be a link, and is not followed. It
// returns where that is on this machine, too.
func (v *Validator) lstat(path string) (real string, st unix.Stat_t, err error) {
	dir, err := v.Root.Resolve(filepath.Dir(path))
	if err == nil {
		real = filepath.Join(dir, filepath.Base(path))
		err = host.Lstat(real, &st)
	}
	return real, st, err
}

// mergeRepeated keeps one of several equal findings and counts them: eight LPUs share a
// mount, and sets repeat the nodes of their LPUs.
func (d *document) mergeRepeated() {
	times := map[string]int{}
	for _, f := range d.findings {
		times[string(f.ID)+f.Message]++
	}
	var kept finding.List
	for _, f := range d.findings {
		key := string(f.ID) + f.Message
		if n := times[key]; n > 1 {
			f.Message += fmt.Sprintf(" (%d times)", n)
		} else if n == 0 {
			continue
		}
		times[key] = 0
		kept = append(kept, f)
	}
	d.findings = kept
}
