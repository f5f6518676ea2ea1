package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// StateDir is the directory, under the root, with what lpuctl must not forget when it is
// started again.
const StateDir = "/var/lib/lpuctl"

// HealthFile is the name of the file in StateDir with the health of the LPUs.
const HealthFile = "health.json"

// Memory is what outlives a process. The zero value remembers nothing.
type Memory struct {
	Dir      string         // StateDir as a path of this machine; "": none
	SetApart health.Cordons // LPUs that the configuration keeps for leases
	ReadOnly bool           // nothing is written: the files are another program's
}

// RememberIn is the memory of the machine under root. The error is that of
// [host.Root.Resolve].
func RememberIn(root host.Root) (Memory, error) {
	dir, err := root.Resolve(StateDir)
	return Memory{Dir: dir}, err
}

// path is that of a file in the directory; "" if there is no directory.
func (m Memory) path(name string) string {
	if m.Dir == "" {
		return ""
	}
	return filepath.Join(m.Dir, name)
}

// Cordons is the file with the cordons of the machine.
func (m Memory) Cordons() *health.CordonFile {
	return &health.CordonFile{Path: m.path("cordon.json"), SetApart: m.SetApart}
}

// healthRecord is the document in HealthFile.
type healthRecord struct {
	statefile.Header
	Boot    string                   `json:"boot"`    // [host.Moment]
	Healthy map[string]bool          `json:"healthy"` // as reported to the kubelet, by Device.ID
	LPUs    map[string]health.Record `json:"lpus"`    // by PCI address
}

// healthFile is HealthFile.
func (m Memory) healthFile() statefile.File[healthRecord] {
	return statefile.File[healthRecord]{Path: m.path(HealthFile), Kind: "Health", Limit: 1 << 20}
}

// read reads what is known of the health of LPUs in this boot. It is nothing if there is
// no file, or if it is of another boot. The error says that the file cannot be used.
func (m Memory) read() (healthRecord, error) {
	r, err := m.healthFile().Read()
	if r == nil || r.Boot == "" || r.Boot != host.Now().Boot {
		return healthRecord{}, err
	}
	return *r, nil
}

// Records are what the latest serve of this boot remembered of the LPUs' health, by PCI
// address. A file that cannot be used is put aside, and the error says so: then all is
// judged again. After a shortage ([host.IsShortage]) it stays, and may be read later.
func (m Memory) Records() (map[string]health.Record, error) {
	r, err := m.read()
	if err != nil && !host.IsShortage(err) {
		err = fmt.Errorf("%w, and the health of LPUs is judged anew", m.healthFile().PutAside(err))
	}
	return r.LPUs, err
}

// Seen are the LPUs that were here in this boot, as far as serve has seen them: none by a
// file that cannot be used. The error is that of a shortage.
func (m Memory) Seen() (seen []pci.Address, err error) {
	r, err := m.read()
	if host.IsShortage(err) {
		return nil, err
	}
	for id := range r.Healthy {
		if a, err := cdi.ParseAddressName(id); err == nil {
			seen = append(seen, a)
		}
	}
	return seen, nil
}

// judgedFor is how long what serve has judged is worth showing. A serve that runs renews
// it every ten seconds.
const judgedFor = 30 * time.Second

// Judge judges the LPUs of an inventory by what serve remembers of them, if that is
// fresh: their health is what serve will say when it has read the same. A fault that
// serve has to read once more leaves it unknown. now is the time since boot. The error
// says that it is not known what serve remembers, for a shortage ([host.IsShortage]) or
// because its file cannot be used.
func (m Memory) Judge(inv *discovery.Inventory, policy health.Policy, now time.Duration) error {
	r, err := m.read()
	path := m.path(HealthFile)
	info, statErr := os.Stat(path)
	if err != nil || host.IsShortage(statErr) {
		return cmp.Or(err, statErr)
	}
	if statErr != nil || time.Since(info.ModTime()).Abs() > judgedFor {
		return nil
	}
	inv.Judge(health.NewJudge(policy, r.LPUs), now)
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		c, known := r.LPUs[l.Address.String()]
		if !known {
			continue
		}
		l.Judged = &discovery.Judged{Health: c.State, Since: c.Since, Reasons: c.Reasons, Source: path}
		switch {
		case l.Health == discovery.Healthy && !l.Usable:
			l.Health = discovery.HealthUnknown
		case l.Health == discovery.Unhealthy && l.Usable:
			// What was wrong stays said until it counts as healthy.
			was := slices.DeleteFunc(slices.Clone(c.Reasons), func(f finding.Finding) bool { return l.Reasons.Has(f.ID) })
			l.Reasons = append(was, l.Reasons...)
			l.Usable = !l.Reasons.HasErrors()
		}
	}
	return nil
}

// keptHealth is what was written of the health last.
type keptHealth struct {
	text string      // without the times of the latest readings
	file os.FileInfo // as it was left; nil: it was not written
}

// keepHealth writes what is known. If nothing has changed but the times of the latest
// readings, and the file says the same, it only renews the file's time.
func (m Memory) keepHealth(healthy map[string]bool, records map[string]health.Record, before keptHealth) (keptHealth, error) {
	r := healthRecord{Boot: host.Now().Boot, Healthy: healthy, LPUs: records}
	text, err := r.text()
	if err != nil {
		return before, err
	}
	if m.Dir == "" || m.ReadOnly {
		return keptHealth{text: text}, nil
	}
	path := m.path(HealthFile)
	now := time.Now()
	if text != before.text || !before.isAt(path) && !m.says(text) || os.Chtimes(path, now, now) != nil {
		data, err := m.healthFile().Marshal(&r)
		if err == nil {
			err = m.keep(HealthFile, data)
		}
		if err != nil {
			return before, err
		}
	}
	file, err := os.Lstat(path)
	return keptHealth{text, file}, err
}

// text is the record without its header and the times of the latest readings.
func (r healthRecord) text() (string, error) {
	lpus := map[string]health.Record{}
	for id, c := range r.LPUs {
		c.Readings, c.First, c.Latest = 0, 0, 0
		lpus[id] = c
	}
	r.Header, r.LPUs = statefile.Header{}, lpus
	text, err := json.Marshal(r)
	return string(text), err
}

// isAt reports whether the file is as it was left.
func (k keptHealth) isAt(path string) bool {
	file, err := os.Lstat(path)
	return err == nil && os.SameFile(file, k.file) && file.Size() == k.file.Size() && file.ModTime().Equal(k.file.ModTime())
}

// says reports whether the file says this: the DRA driver may have written the same
// beside serve.
func (m Memory) says(text string) bool {
	r, err := m.read()
	if err != nil {
		return false
	}
	now, err := r.text()
	return err == nil && now == text
}

// KeepRing writes the cabling of an inventory to [discovery.LastRingTable], if a ring
// table could be used and the file says something else. Later scans use it when the table
// breaks.
func (m Memory) KeepRing(inv *discovery.Inventory) error {
	if table := inv.LastRing(); table != nil {
		return m.keep(filepath.Base(discovery.LastRingTable), table)
	}
	return nil
}

// keep writes a file unless it is the same already, and no one else can have written it.
func (m Memory) keep(name string, data []byte) error {
	if m.Dir == "" || m.ReadOnly {
		return nil
	}
	return wholefile.Keep(m.path(name), data)
}

// healthBefore is the health of each device before a snapshot. Before the first one it is
// what memory or another program knows.
func (n *Node) healthBefore(ctx context.Context, inv *discovery.Inventory, before *Snapshot) map[string]bool {
	if before.Inventory == nil {
		n.started = n.Now()
		known, _ := n.Memory.read() // of a file that cannot be used nothing is known
		n.recalled = known.Healthy
		if n.Recall != nil && n.doubtful(inv) {
			if n.recalled == nil {
				n.recalled = map[string]bool{}
			}
			maps.Copy(n.recalled, n.Recall(ctx))
		}
		return n.recalled
	}
	return before.healthy()
}

// healthy returns which devices of a snapshot are healthy, by [Device.ID].
func (s *Snapshot) healthy() map[string]bool {
	all := map[string]bool{}
	for _, d := range s.Devices {
		all[d.ID] = d.Healthy
	}
	return all
}

// doubtful reports whether there is an LPU whose health is not known and was not known
// before either.
func (n *Node) doubtful(inv *discovery.Inventory) bool {
	for _, l := range inv.LPUs {
		if _, known := n.recalled[cdi.AddressName(l.Address)]; l.Health == discovery.HealthUnknown && !known {
			return true
		}
	}
	return false
}

// remember writes what must outlive the process, where it has changed.
func (n *Node) remember(s *Snapshot) {
	healthy := map[string]bool{}
	for _, d := range s.Devices {
		if card, present := s.Cards[d.ID]; present && (s.Settled || s.Inventory.LPUs[card].Health != discovery.HealthUnknown) {
			healthy[d.ID] = d.Healthy
		}
	}
	kept, err := n.Memory.keepHealth(healthy, s.Inventory.Records, n.kept)
	n.kept = kept
	err = cmp.Or(n.Memory.KeepRing(s.Inventory), err)
	if err != nil && fmt.Sprint(err) != fmt.Sprint(n.memoryError) {
		n.log.Warn("what is known of the LPUs cannot be kept for the next start", "error", err)
	}
	n.memoryError = err
}
