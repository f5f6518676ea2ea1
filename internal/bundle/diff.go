package bundle

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Change is one thing that two bundles say differently.
type Change struct {
	What string `json:"what"` // finding, card, version, spec, config, link
	Mark string `json:"mark"` // "+" new, "-" gone, "~" changed
	Text string `json:"text"`
}

// String is a line for people.
func (c Change) String() string { return shell.Printable(c.Mark + " " + c.What + ": " + c.Text) }

// Diff returns what changed from one bundle to another. The order is always the same. The
// error is that an answer in one cannot be read.
func Diff(older, newer *Bundle) ([]Change, error) {
	all := []Change{}
	for _, v := range [][3]string{{"lpuctl", older.Index.Program, newer.Index.Program}, {"kernel", older.Index.Kernel, newer.Index.Kernel}} {
		if v[1] != v[2] {
			all = append(all, Change{"version", "~", fmt.Sprintf("%s: %s, now %s", v[0], v[1], v[2])})
		}
	}
	if older.Index.Boot != newer.Index.Boot {
		all = append(all, Change{"boot", "~", "the node was booted in between, or it is another node"})
	}
	for _, of := range []func(*Bundle) (map[string]string, string, error){
		runtimesOf, cardsOf, linksOf, findingsOf, textsOf("spec", isSpec), textsOf("config", isConfig),
	} {
		before, _, err := of(older)
		if err != nil {
			return nil, err
		}
		after, what, err := of(newer)
		if err != nil {
			return nil, err
		}
		all = append(all, compare(what, before, after)...)
	}
	return all, nil
}

// compare compares things by their names, with texts in which they can differ.
func compare(what string, before, after map[string]string) (all []Change) {
	for name, text := range before {
		now, still := after[name]
		switch {
		case !still:
			all = append(all, Change{what, "-", name})
		case now != text && len(text) < nameMax && len(now) < nameMax && text != "" && now != "":
			all = append(all, Change{what, "~", fmt.Sprintf("%s: %s, now %s", name, text, now)})
		case now != text:
			all = append(all, Change{what, "~", name})
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			all = append(all, Change{what, "+", name})
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.Text, b.Text) })
	return all
}

func runtimesOf(b *Bundle) (map[string]string, string, error) {
	var r runtimes.Recorded
	_, err := b.Answer(Runtimes, &r)
	of := map[string]string{}
	for _, found := range r.Asked {
		of[found.Name] = strings.TrimSpace(found.Version + " CDI " + string(found.CDI))
	}
	return of, "runtime", err
}

// cardsOf returns the PCI functions that a driver can be bound to, with the driver.
func cardsOf(b *Bundle) (map[string]string, string, error) {
	const devices = rootDir + "/sys/bus/pci/devices"
	of := map[string]string{}
	for name, e := range b.Entries {
		address, err := pci.Parse(path.Base(name))
		if path.Dir(name) != devices || err != nil || e.Link == "" {
			continue
		}
		dir := path.Join(devices, e.Link)
		if vendor := b.Entries[path.Join(dir, "vendor")]; vendor == nil || len(vendor.Data) == 0 || b.Entries[path.Join(dir, "device")] == nil ||
			len(b.Entries[path.Join(dir, "device")].Data) == 0 {
			continue // not looked at: no LPU
		}
		driver := "no driver"
		if link := b.Entries[path.Join(dir, "driver")]; link != nil && link.Link != "" {
			driver = path.Base(link.Link)
		}
		of[address.String()] = driver
	}
	return of, "card", nil
}

func diagnosisOf(b *Bundle) (d doctor.Diagnosis, err error) {
	_, err = b.Answer(Doctor, &d)
	return d, err
}

func linksOf(b *Bundle) (map[string]string, string, error) {
	d, err := diagnosisOf(b)
	of := map[string]string{}
	for _, s := range d.Steps {
		of[string(s.Link)] = string(s.State)
	}
	return of, "link", err
}

func findingsOf(b *Bundle) (map[string]string, string, error) {
	d, err := diagnosisOf(b)
	of := map[string]string{}
	for _, f := range d.Findings() {
		of[findingText(&f)] = ""
	}
	return of, "finding", err
}

func findingText(f *finding.Finding) string {
	return fmt.Sprintf("%s %s: %s: %s", f.Severity, f.ID, f.Subject, f.Message)
}

func isSpec(p string) bool {
	return strings.HasSuffix(path.Dir(p), "/cdi") && !strings.HasPrefix(p, "/sys/")
}

func isConfig(p string) bool {
	return !isSpec(p) && (below(p, "/etc") || below(p, "/opt") || below(p, "/usr/lib/systemd"))
}

// textsOf returns a function that returns the files of a kind, each with its text.
func textsOf(what string, is func(string) bool) func(*Bundle) (map[string]string, string, error) {
	return func(b *Bundle) (map[string]string, string, error) {
		of := map[string]string{}
		for name, e := range b.Entries {
			if p, ok := strings.CutPrefix(name, rootDir); ok && !e.Dir && e.Link == "" && is(p) {
				of[p] = strings.Repeat(" ", nameMax) + string(bytes.TrimSpace(e.Data)) // not to be shown
			}
		}
		return of, what, nil
	}
}
