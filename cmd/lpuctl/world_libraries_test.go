package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	library "tags.cncf.io/container-device-interface/pkg/cdi"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/test/libraries"
)

// answers is what the CDI library said of files.
type answers struct {
	of   string // the files, and where the nodes were
	lost []string
}

// lost are the names with which a container gets another node than its LPU's, by what the CDI library
// injects: each release of it that the runtime may be built with. What it said last holds until a
// file is another one, or a node.
func (w *world) lost() []string {
	files := w.specFiles()
	of := fmt.Sprint(w.dirs(), w.library, files)
	for i := range worldLPUs {
		of += fmt.Sprint(w.usable(i), w.machine.Card(i).Node)
	}
	if of != w.said.of {
		w.said = answers{of, w.ask(files)}
	}
	return w.said.lost
}

// specFile is a file in a spec directory.
type specFile struct{ dir, name, text string }

// specFiles are those that runtimes read.
func (w *world) specFiles() (files []specFile) {
	for _, dir := range w.dirs() {
		entries, _ := os.ReadDir(filepath.Join(w.root, dir)) // there may be none yet
		for _, e := range entries {
			if !slices.Contains([]string{".json", ".yaml"}, filepath.Ext(e.Name())) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(w.root, dir, e.Name()))
			if err != nil {
				w.t.Fatal(err)
			}
			files = append(files, specFile{dir, e.Name(), string(data)})
		}
	}
	return files
}

// ask asks the library about these files.
func (w *world) ask(files []specFile) (lost []string) {
	dirs := w.withNumbers(files)
	built := func(l *libraries.Release) bool { return w.library == "" || l.Name == w.library }
	known := slices.ContainsFunc(w.libraries, built)
	for _, l := range w.libraries {
		if known && !built(l) {
			continue
		}
		for qualified, numbers := range l.Ask(w.t, dirs) {
			name, ours := strings.CutPrefix(qualified, cdi.DefaultKind+"=")
			if !ours || strings.HasPrefix(name, strayPrefix) || !w.strange(name, numbers) {
				continue
			}
			w.count["lost names"]++
			w.count["lost by "+l.Name]++
			if !slices.Contains(lost, name) {
				lost = append(lost, name)
			}
		}
	}
	return lost
}

// strange reports whether a name leads to a node that none of its LPUs has. Of a node that no LPU
// has, that counts only if the LPU has another one.
func (w *world) strange(name string, numbers []string) bool {
	own := w.lpusOf(name)
	moved := len(own) == 1 && w.usable(own[0])
	return slices.ContainsFunc(numbers, func(number string) bool {
		has := func(i int) bool { return w.numberOf(w.machine.Card(i).Node) == number }
		return number == nobodys && moved || number != nobodys && !slices.ContainsFunc(own, has)
	})
}

// nobodys is the number of the nodes that no LPU has which can be used.
const nobodys = "1:3"

// numberOf is the number by which a node is known in copies of specs.
func (w *world) numberOf(path string) string {
	for i := range worldLPUs {
		if w.usable(i) && w.machine.Card(i).Node == path {
			return fmt.Sprint("226:", i)
		}
	}
	return nobodys
}

// withNumbers copies files with the numbers of the nodes in them, because the library takes numbers
// from the machine that it runs on, which has no such nodes. It returns the directories of the copies.
func (w *world) withNumbers(files []specFile) (dirs []string) {
	copies := filepath.Join(filepath.Dir(w.root), "copies")
	if err := os.RemoveAll(copies); err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range w.dirs() {
		dirs = append(dirs, filepath.Join(copies, dir))
		if err := os.MkdirAll(filepath.Join(copies, dir), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, f := range files {
		text := []byte(f.text)
		if spec, err := library.ParseSpec(text); err == nil && spec != nil { // else no release takes it
			w.number(&spec.ContainerEdits)
			for i := range spec.Devices {
				w.number(&spec.Devices[i].ContainerEdits)
			}
			var marshalErr error
			text, marshalErr = json.Marshal(spec)
			if marshalErr != nil {
				w.t.Fatal(marshalErr)
			}
		}
		if err := os.WriteFile(filepath.Join(copies, f.dir, f.name), text, 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	return dirs
}

// number puts the numbers of nodes in.
func (w *world) number(edits *specs.ContainerEdits) {
	for _, n := range edits.DeviceNodes {
		path := n.HostPath
		if path == "" {
			path = n.Path
		}
		n.Type = "c"
		if _, err := fmt.Sscanf(w.numberOf(path), "%d:%d", &n.Major, &n.Minor); err != nil {
			w.t.Fatal(err)
		}
	}
}

// parse returns what a file says, nil if it cannot be read. It parses each text once, which takes long.
func (w *world) parse(text string) *specs.Spec {
	spec, done := w.parsed[text]
	if !done {
		if len(w.parsed) > 100 {
			clear(w.parsed)
		}
		spec, _ = library.ParseSpec([]byte(text))
		w.parsed[text] = spec
	}
	return spec
}

// beside reports whether a file beside ours defines a device with this name. Of two files in one
// directory that define one name the library takes neither.
func (w *world) beside(name string) bool {
	for _, f := range w.specFiles() {
		spec := w.parse(f.text)
		if spec != nil && spec.Kind == cdi.DefaultKind && filepath.Join(w.root, f.dir) == filepath.Dir(w.specPath()) &&
			f.name != filepath.Base(w.specPath()) && slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return d.Name == name }) {
			return true
		}
	}
	return false
}

// conflict reports whether a file beside ours defines what a spec made now has.
func (w *world) conflict() bool {
	for i, id := range w.ids() {
		if w.usable(i) && (w.beside(id) || w.beside(fmt.Sprint("lpu", i)) || w.beside(cdi.AllDevice)) {
			return true
		}
	}
	return false
}

// toggle puts a file of a name into one of both directories, or takes it away.
func (w *world) toggle(at *string, name string, data []byte) bool {
	if *at != "" {
		path := *at
		*at = ""
		return os.Remove(path) == nil
	}
	*at = filepath.Join(w.root, w.dirs()[w.rand.IntN(2)], name)
	return errors.Join(os.MkdirAll(filepath.Dir(*at), 0o755), os.WriteFile(*at, data, 0o644)) == nil
}

// toggleForeign puts a file of another program that defines lpu0 too into one of both directories,
// or takes it away.
func (w *world) toggleForeign() bool {
	const text = "cdiVersion: 0.5.0\nkind: hyperaccel.ai/lpu\ndevices: [{name: %s, containerEdits: {deviceNodes: [{path: /dev/null}]}}]\n"
	return w.toggle(&w.foreign, "other.yaml", fmt.Appendf(nil, text, cdi.AddressName(w.machine.Card(0).Address)))
}

// leaveOver puts a copy of our spec, as it is or as it was once, into one of both directories, where
// nothing renews it, or takes it away.
func (w *world) leaveOver() bool {
	data, err := os.ReadFile(w.specPath())
	if w.leftover == "" && err != nil {
		return false
	}
	was := data
	if w.rand.IntN(2) == 0 && w.former != nil {
		was = w.former
	}
	if err == nil {
		w.former = data
	}
	if len(w.libraries) > 1 { // some take it, and others do not
		version := []string{"0.3.0", "0.8.0", "1.1.0"}[w.rand.IntN(3)]
		was = []byte(strings.Replace(string(was), `"cdiVersion": "0.3.0"`, `"cdiVersion": "`+version+`"`, 1))
	}
	return w.toggle(&w.leftover, "old.json", was)
}

// dirs are the directories that the runtime reads, the highest priority last.
func (w *world) dirs() []string {
	dirs := []string{"/etc/cdi", "/var/run/cdi"}
	if w.turned {
		slices.Reverse(dirs)
	}
	return dirs
}

// turn installs a runtime of another release that reads the directories the other way round than
// before, or removes it, so that none is known. serve sees it when it reloads.
func (w *world) turn() bool {
	w.turned = !w.turned
	if !w.turned && w.rand.IntN(2) == 0 {
		w.library = ""
		if err := os.Remove(filepath.Join(w.root, "usr/bin/containerd")); err != nil {
			w.t.Fatal(err)
		}
		w.reload()
		return true
	}
	release := []struct{ version, library, config string }{
		{"1.7.27", "0.8.1", "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = true\n"},
		{"2.4.0", "1.1.1", "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"},
	}[w.rand.IntN(2)]
	w.library = release.library
	for path, text := range map[string]string{
		"usr/bin/containerd":         "",
		"var/lib/dpkg/status":        "Package: containerd\nStatus: install ok installed\nVersion: " + release.version + "\n\n",
		"etc/containerd/config.toml": release.config + fmt.Sprintf("cdi_spec_dirs = [%q, %q]\n", w.dirs()[0], w.dirs()[1]),
	} {
		path = filepath.Join(w.root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.reload()
	return true
}
