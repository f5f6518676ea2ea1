package claim_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// world is a simulated machine with a ring of eight LPUs, and what the driver knows of it.
type world struct {
	*testing.T
	root string
	inv  *discovery.Inventory
	boot string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, root: filepath.Join(t.TempDir(), "node"), boot: "now"}
	if _, err := (simulate.Node{Profile: "orion"}).Write(w.root); err != nil {
		t.Fatal(err)
	}
	w.scan()
	return w
}

func (w *world) scan() {
	w.Helper()
	inv, err := discovery.Scan(w.Context(), w.root, discovery.Options{})
	if err != nil {
		w.Fatal(err)
	}
	w.inv = inv
}

// Members are the LPUs of a device: its name is "arc" and their indices. One that is called former is of a former cabling.
func (w *world) Members(device string) (members []pci.Address, err error) {
	if device == "former" {
		return nil, fmt.Errorf("device %s: %w", device, claim.ErrRecabled)
	}
	for index := range strings.SplitSeq(strings.TrimPrefix(device, "arc"), "-") {
		var i int
		if _, err := fmt.Sscan(index, &i); err != nil || i >= 8 {
			return nil, fmt.Errorf("device %s: %w", device, claim.ErrUnknown)
		}
		members = append(members, w.lpu(i))
	}
	return members, nil
}

func (w *world) lpu(i int) pci.Address { return w.inv.LPUs[i].Address }

// store is what one instance of the driver has.
func (w *world) store() *claim.Store {
	return &claim.Store{
		Root: host.Root(w.root), Dir: filepath.Join(w.root, "var/lib/lpuctl"), SpecDir: filepath.Join(w.root, "var/run/cdi"),
		Devices: w, BootID: w.boot,
		Inventory: func() *node.Snapshot { return &node.Snapshot{ReadAt: time.Now(), Inventory: w.inv} },
	}
}

// uid is that of claim i. The first begins with a digit, the second with a letter.
func uid(i int) string { return fmt.Sprintf("%dac0ffee-0000-4000-8000-%012d", i, i) }

// wish is claim i, with one request for each device.
func wish(i int, devices ...string) claim.Claim {
	c := claim.Claim{Namespace: "team", Name: fmt.Sprint("job-", i), UID: uid(i)}
	for n, d := range devices {
		name := "lpus"
		if n > 0 {
			name = fmt.Sprintf("more-%d", n)
		}
		c.Requests = append(c.Requests, claim.Request{Name: name, Devices: []string{d}})
	}
	return c
}

func (w *world) prepare(s *claim.Store, c claim.Claim) []claim.Prepared {
	w.Helper()
	prepared, err := s.Prepare(w.Context(), c)
	if err != nil {
		w.Fatal(err)
	}
	return prepared
}

func (w *world) refused(s *claim.Store, c claim.Claim, want string) {
	w.Helper()
	prepared, err := s.Prepare(w.Context(), c)
	if err == nil || prepared != nil || !strings.Contains(err.Error(), want) {
		w.Errorf("prepared %v, error %v; want one with %q", prepared, err, want)
	}
}

func (w *world) unprepare(s *claim.Store, uid string) {
	w.Helper()
	if err := s.Unprepare(w.Context(), uid); err != nil {
		w.Error(err)
	}
}

// restore wants findings of these ids, in this order.
func (w *world) restore(s *claim.Store, want ...finding.ID) finding.List {
	w.Helper()
	findings, err := s.Restore(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var got []finding.ID
	for _, f := range findings {
		got = append(got, f.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("findings (-want +got):\n%s%v", diff, findings)
	}
	return findings
}

// holds wants the checkpoint to say that a claim has these LPUs, and no others to be had.
func (w *world) holds(s *claim.Store, want map[int]int) {
	w.Helper()
	holders, err := s.Holders()
	if err != nil {
		w.Error(err)
	}
	got := map[int]string{}
	for a, who := range holders {
		got[slices.IndexFunc(w.inv.LPUs, func(l discovery.LPU) bool { return l.Address == a })] = who
	}
	wanted := map[int]string{}
	for lpu, i := range want {
		wanted[lpu] = fmt.Sprintf("claim team/job-%d (%s)", i, uid(i))
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		w.Errorf("holders (-want +got):\n%s", diff)
	}
}

// unknown wants it to be said that it is not known what the claim of a file has, and what to do about that.
func (w *world) unknown(s *claim.Store, path string) {
	w.Helper()
	_, err := s.Holders()
	said, ok := errors.AsType[*claim.UnknownError](err)
	if !ok || !strings.Contains(err.Error(), path) ||
		said.Remedy() != fmt.Sprintf("if no pod has the claim %[1]s: lpuctl cdi remove --claim %[1]s", uid(1)) {
		w.Errorf("%v; want it to name %s, and what to do", err, path)
	}
	_, problems, err := s.Inspect()
	w.must(err)
	if len(problems) != 1 || problems[0].File != path || problems[0].Remedy != said.Remedy() {
		w.Errorf("%v", problems)
	}
}

// env are the variables of a claim's file, by device.
func (w *world) env(s *claim.Store, uid string) map[string][]string {
	w.Helper()
	all := map[string][]string{}
	for _, d := range cdi.Devices(w.read(cdi.ClaimFile(s.SpecDir, uid))) {
		all[d.Name] = d.ContainerEdits.Env
	}
	return all
}

func (w *world) read(path string) []byte {
	w.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	return data
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// record is the file with the record of claim 1.
func record(s *claim.Store) string { return recordOf(s, 1) }

// TestOneRequest: a container with the only request of a claim is told of its LPUs as everybody else is, in ring order.
func TestOneRequest(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	got := w.prepare(s, wish(1, "arc6-7-0-1"))
	names := func(indices ...int) (names []string) {
		for _, i := range indices {
			names = append(names, "hyperaccel.ai/lpu="+cdi.AddressName(w.lpu(i)))
		}
		return names
	}
	want := []claim.Prepared{{
		Request: "lpus", Device: "arc6-7-0-1", Members: []pci.Address{w.lpu(6), w.lpu(7), w.lpu(0), w.lpu(1)},
		CDI: append(names(6, 7, 0, 1), "hyperaccel.ai/lpu-claim=claim-"+uid(1)+"-lpus"),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	addresses := fmt.Sprintf("%s,%s,%s,%s", w.lpu(6), w.lpu(7), w.lpu(0), w.lpu(1))
	env := map[string][]string{"claim-" + uid(1) + "-lpus": {
		"LPU_DRIVER_VERSION=" + w.inv.LPUs[0].DriverVersion, "LPU_VISIBLE_DEVICES=6,7,0,1", "LPU_RING_ORDER=2,3,0,1", "LPU_CONNECTED=true",
		"NUM_LPU_DEVICES=4", "LPU_CLAIM_1AC0FFEE_VISIBLE_DEVICES=6,7,0,1", "LPU_CLAIM_1AC0FFEE_ADDRESSES=" + addresses,
		"LPU_CLAIM_1AC0FFEE_CONNECTED=true", "LPU_CLAIM_1AC0FFEE_DEVICES=arc6-7-0-1", "LPU_CLAIM_1AC0FFEE_NAME=team/job-1",
	}}
	if diff := cmp.Diff(env, w.env(s, uid(1))); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	file := w.read(cdi.ClaimFile(s.SpecDir, uid(1)))
	if !strings.Contains(string(file), `"cdiVersion": "0.3.0"`) {
		t.Errorf("a runtime of before 0.5.0 cannot load it:\n%s", file)
	}
	if findings := (&cdi.Validator{}).File(cdi.ClaimFile(s.SpecDir, uid(1))); len(findings) > 0 {
		t.Error(findings)
	}
}

// TestRingTableOfAClaim: the file mounts the table of each request's LPUs, which is there. A claim is
// prepared without one if it cannot be written.
func TestRingTableOfAClaim(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	tables := filepath.Join(w.root, cdi.RingTableDir)
	mounted := func(c claim.Claim) (paths []string) {
		t.Helper()
		w.prepare(s, c)
		for _, d := range cdi.Devices(w.read(cdi.ClaimFile(s.SpecDir, c.UID))) {
			for _, m := range d.ContainerEdits.Mounts {
				if m.ContainerPath != discovery.HyperdexRingTable {
					t.Errorf("%s mounts %+v", d.Name, m)
				}
				w.read(filepath.Join(w.root, m.HostPath))
				paths = append(paths, m.HostPath)
			}
		}
		return paths
	}
	want := []string{cdi.RingTableOf(w.inv, []int{0, 1, 6, 7}).HostPath, cdi.RingTableOf(w.inv, []int{2}).HostPath}
	if got := mounted(wish(1, "arc6-7-0-1", "arc2")); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.must(os.RemoveAll(tables))
	if got := mounted(wish(1, "arc6-7-0-1", "arc2")); !slices.Equal(got, want) {
		t.Errorf("after a boot: %v", got)
	}
	w.must(os.RemoveAll(tables))
	if !s.Missing() {
		t.Error("tables are gone, and nothing is missed")
	}
	if _, err := s.Restore(t.Context()); err != nil || s.Missing() {
		t.Errorf("after Restore: %v", err)
	}
	w.must(errors.Join(os.RemoveAll(tables), os.WriteFile(tables, nil, 0o644)))
	if got := mounted(wish(2, "arc3")); len(got) > 0 {
		t.Errorf("tables that are not there: %v", got)
	}
}

// TestSeveralRequests: which of them a container asks for cannot be known, so none sets what is the container's.
func TestSeveralRequests(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	c := wish(1, "arc0-1", "arc2")
	c.Requests[0].Name = "lpus/two"
	c.Requests[1].Devices = append(c.Requests[1].Devices, "arc4-5")
	got := w.prepare(s, c)
	var cdiNames []int
	for _, p := range got {
		cdiNames = append(cdiNames, len(p.CDI))
	}
	if diff := cmp.Diff([]int{3, 2, 2}, cdiNames); diff != "" { // the claim's own device comes once for each request
		t.Errorf("number of CDI names (-want +got):\n%s", diff)
	}
	const prefix = "LPU_CLAIM_1AC0FFEE_"
	env := map[string][]string{
		"claim-" + uid(1) + "-lpus": {
			"LPU_VISIBLE_DEVICES_LPUS=0,1", prefix + "VISIBLE_DEVICES_LPUS=0,1", fmt.Sprintf("%sADDRESSES_LPUS=%s,%s", prefix, w.lpu(0), w.lpu(1)),
			prefix + "CONNECTED_LPUS=true", prefix + "DEVICES_LPUS=arc0-1", prefix + "NAME=team/job-1",
		},
		"claim-" + uid(1) + "-more-1": {
			"LPU_VISIBLE_DEVICES_MORE_1=2,4,5", prefix + "VISIBLE_DEVICES_MORE_1=2,4,5",
			fmt.Sprintf("%sADDRESSES_MORE_1=%s;%s,%s", prefix, w.lpu(2), w.lpu(4), w.lpu(5)), prefix + "CONNECTED_MORE_1=false",
			prefix + "DEVICES_MORE_1=arc2,arc4-5", prefix + "NAME=team/job-1",
		},
	}
	if diff := cmp.Diff(env, w.env(s, uid(1))); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	for _, none := range []claim.Claim{wish(2, "arc6"), wish(3, "arc3", "arc7")} {
		for i := range none.Requests {
			none.Requests[i].Variables = claim.None
		}
		w.prepare(s, none)
		for _, variables := range w.env(s, none.UID) {
			if slices.ContainsFunc(variables, func(v string) bool { return !strings.HasPrefix(v, "LPU_CLAIM_") }) {
				t.Errorf("variables: none, and it sets %v", variables)
			}
		}
	}
}

// TestOverlap: an LPU is one claim's, whatever the devices are called. One that is given back is another's at once.
func TestOverlap(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	w.prepare(s, wish(1, "arc0-1-2-3"))
	w.prepare(s, wish(1, "arc0-1-2-3")) // it is prepared already
	w.refused(s, wish(2, "arc3-4"), fmt.Sprintf("LPU %s is not given: another claim has it: team/job-1 (%s)", w.lpu(3), uid(1)))
	w.refused(s, wish(2, "arc4-5", "arc5"), "is there twice")
	w.holds(s, map[int]int{0: 1, 1: 1, 2: 1, 3: 1})
	claims, err := s.Claims()
	w.must(err)
	if len(claims) != 1 || len(claims[0].Requests) != 1 {
		t.Fatalf("%v", claims)
	}
	if diff := cmp.Diff([]claim.RecordDevice{{Name: "arc0-1-2-3", Members: claims[0].Members()}}, claims[0].Requests[0].Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	w.unprepare(s, uid(1))
	w.unprepare(s, uid(1))
	w.prepare(s, wish(2, "arc3-4"))
	w.prepare(s, wish(2, "arc4-5")) // it was allocated anew
	w.holds(s, map[int]int{4: 2, 5: 2})
	w.unprepare(s, "../../"+uid(2))
	w.unprepare(s, uid(2))
	w.holds(s, map[int]int{})
	for _, dir := range []string{filepath.Dir(record(s)), s.SpecDir} {
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s: %v, %v; want it empty", dir, files, err)
		}
	}
}

// TestRefusals: what must not be given is refused with what to do about it, and nothing is left of it.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	w.refused(s, wish(1, "former"), "claim team/job-1: request lpus: device former: the device is of a former cabling; delete the claim")
	w.refused(s, wish(1, "arc9"), "kubectl --namespace team delete resourceclaim job-1")
	w.refused(s, wish(1), "it has no request")
	for _, bad := range []func(*claim.Claim){
		func(c *claim.Claim) { c.UID = "../x" },
		func(c *claim.Claim) { c.UID = "" },
		func(c *claim.Claim) { c.Requests[0].Variables = "all" },
		func(c *claim.Claim) { c.Requests[0].Devices = nil },
		func(c *claim.Claim) { c.Requests = append(c.Requests, c.Requests[0]) },
	} {
		c := wish(1, "arc0")
		bad(&c)
		w.refused(s, c, "claim ")
	}
	s.Refuse = func(a pci.Address) error {
		if a == w.lpu(2) {
			return errors.New("it is unhealthy")
		}
		return nil
	}
	w.refused(s, wish(1, "arc1-2"), fmt.Sprintf("LPU %s is not given: it is unhealthy", w.lpu(2)))
	s.Refuse = nil
	inventory := s.Inventory
	for want, snapshot := range map[string]*node.Snapshot{
		"has not been read yet": {}, "was read 1m0s ago": {ReadAt: time.Now().Add(-time.Minute), Inventory: w.inv},
	} {
		s.Inventory = func() *node.Snapshot { return snapshot }
		w.refused(s, wish(1, "arc1-2"), want)
	}
	s.Inventory = inventory
	gone := *w.inv
	gone.LPUs = slices.Clone(gone.LPUs)
	gone.LPUs[1].Nodes = nil
	w.inv = &gone
	w.refused(s, wish(1, "arc1-2"), "it has no device node")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Prepare(ctx, wish(1, "arc4")); !errors.Is(err, context.Canceled) {
		t.Errorf("the kubelet has given up, and the claim is prepared: %v", err)
	}
	w.holds(s, map[int]int{})
	w.restore(s)
	if s.Missing() {
		t.Error("something is missing")
	}
}

// TestManyAtOnce: claims of overlapping LPUs are prepared and given back by two instances at the same time. No LPU is ever two claims'.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	stores := []*claim.Store{w.store(), w.store()}
	devices := []string{"arc0-1-2-3", "arc2-3", "arc3-4", "arc4-5-6-7", "arc7-0", "arc0-1-2-3-4-5-6-7", "arc5"}
	lock, err := filelock.Hold(t.Context(), filepath.Join(stores[0].Dir, "claims.json")) // as another instance does while it prepares
	w.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := stores[0].Prepare(ctx, wish(1, devices[0])); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another instance prepares: %v", err)
	}
	w.must(lock.Close())
	var owned sync.Map
	var wg sync.WaitGroup
	prepared := make([]int, len(devices))
	for i, device := range devices {
		wg.Go(func() {
			for round := range 8 {
				s := stores[(i+round)%2]
				got, err := s.Prepare(t.Context(), wish(i+1, device))
				if err != nil {
					if !strings.Contains(err.Error(), "is not given: another claim has it: team/job-") {
						t.Error(err)
					}
					continue
				}
				prepared[i]++
				for _, a := range got[0].Members {
					if other, taken := owned.LoadOrStore(a, i); taken {
						t.Errorf("%s is given to claim %d, and claim %d has it", a, i+1, other.(int)+1)
					}
				}
				time.Sleep(time.Millisecond)
				for _, a := range got[0].Members {
					owned.Delete(a)
				}
				if err := stores[round%2].Unprepare(t.Context(), uid(i+1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.holds(stores[0], map[int]int{})
	t.Logf("prepared, of each claim: %v", prepared)
}

// TestRestore: after a start each prepared claim has its file, and nobody else has anything.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	w.prepare(s, wish(1, "arc0-1"))
	w.prepare(s, wish(2, "arc2", "arc3-4"))
	want := w.read(cdi.ClaimFile(s.SpecDir, uid(2)))
	w.must(os.RemoveAll(s.SpecDir))
	if !s.Missing() {
		t.Error("the CDI directory was wiped, and nothing is missing")
	}
	s = w.store()
	w.restore(s)
	if diff := cmp.Diff(string(want), string(w.read(cdi.ClaimFile(s.SpecDir, uid(2))))); diff != "" {
		t.Errorf("another file (-want +got):\n%s", diff)
	}
	w.must(os.WriteFile(cdi.ClaimFile(s.SpecDir, uid(1)), []byte("{"), 0o644))
	w.restore(s)
	w.env(s, uid(1))
	if s.Missing() {
		t.Error("all is there, and something is missing")
	}
	// The checkpoint is lost, and a runtime has the files.
	w.must(os.RemoveAll(filepath.Dir(record(s))))
	w.refused(s, wish(3, "arc4-5"), "has it: team/job-2")
	before, err := s.Claims()
	w.must(err)
	w.restore(s, finding.ClaimRecord, finding.ClaimRecord)
	after, err := s.Claims()
	w.must(err)
	if diff := cmp.Diff(names(before), names(after)); diff != "" || len(after) != 2 {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	w.holds(s, map[int]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 2})
	w.prepare(s, wish(2, "arc2", "arc3-4"))
	// The node was started again.
	w.boot = "another"
	s = w.store()
	if got, err := s.Claims(); len(got) > 0 || err != nil {
		t.Errorf("claims of an earlier boot: %v, %v", got, err)
	}
	w.prepare(s, wish(3, "arc4-5"))
	w.restore(s)
	w.holds(s, map[int]int{4: 3, 5: 3})
	if _, err := os.Lstat(cdi.ClaimFile(s.SpecDir, uid(1))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a claim of an earlier boot: %v", err)
	}
}

func names(claims []*claim.Record) (all []string) {
	for _, c := range claims {
		all = append(all, c.String(), fmt.Sprint(c.Members()), fmt.Sprint(c.Requests[0].Devices))
	}
	return all
}

// TestBadRecords: a record that cannot be used is put aside, made anew of the claim's CDI file, and in no other claim's way.
func TestBadRecords(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world, path string)
		bad   bool // it is put aside, and made anew
		known bool // whether it is also known without the CDI file
	}{
		"empty":          {write(""), true, false},
		"half":           {func(w *world, path string) { w.must(os.Truncate(path, 100)) }, true, false},
		"junk":           {write("\x00\x01"), true, false},
		"huge":           {write(strings.Repeat(" ", 1<<20+1)), true, false},
		"a link":         {func(w *world, path string) { w.must(errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path))) }, true, false},
		"a FIFO":         {func(w *world, path string) { w.must(errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644))) }, true, false},
		"of all":         {func(w *world, path string) { w.must(os.Chmod(path, 0o666)) }, true, false},
		"another":        {replace(uid(1), uid(9)), true, false},
		"newer":          {replace(`"version": 1`, `"version": 2, "later": true`), true, true},
		"much newer":     {replace(`"version": 1`, `"version": 9, "state": "lent"`), true, false},
		"unknown fields": {replace(`"version": 1`, `"version": 1, "later": {"a": 1}`), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.store()
			w.prepare(s, wish(1, "arc0-1"))
			w.prepare(s, wish(2, "arc2-3"))
			c.spoil(w, record(s))
			if got := w.store().Missing(); got != c.bad {
				t.Errorf("missing: %t", got)
			}
			w.refused(w.store(), wish(3, "arc1"), "has it: team/job-1")
			w.holds(w.store(), map[int]int{0: 1, 1: 1, 2: 2, 3: 2})
			w.refused(s, wish(3, "arc1"), "has it: team/job-1")
			w.refused(s, wish(3, "arc2"), "has it: team/job-2")
			if c.bad {
				w.restore(s, finding.ClaimRecord, finding.ClaimRecord)
			}
			w.restore(s)
			w.holds(s, map[int]int{0: 1, 1: 1, 2: 2, 3: 2})
			w.prepare(s, wish(1, "arc0-1", "arc4")) // it was allocated anew
			w.prepare(s, wish(1, "arc0-1"))
			if later := strings.Contains(string(w.read(record(s))), "later"); later != (name == "unknown fields") {
				t.Errorf("the record:\n%s", w.read(record(s)))
			}
			// The CDI file is lost too. Who has prepared the claim knows it.
			c.spoil(w, record(s))
			w.must(os.Remove(cdi.ClaimFile(s.SpecDir, uid(1))))
			w.refused(s, wish(3, "arc1"), "has it: team/job-1")
			s = w.store()
			want := map[int]int{2: 2, 3: 2}
			if c.known {
				want[0], want[1] = 1, 1
			} else {
				w.unknown(s, record(s))
			}
			w.must(func() error { _, err := s.Restore(t.Context()); return err }())
			if !c.known { // until the kubelet says whether a pod has the claim
				w.unknown(s, record(s))
			}
			s.Hear(nil)
			w.must(func() error { _, err := s.Restore(t.Context()); return err }())
			w.holds(s, want)
			w.prepare(s, wish(1, "arc0-1"))
			w.env(s, uid(1))
			w.unprepare(s, uid(1))
			w.holds(s, map[int]int{2: 2, 3: 2})
			// It is given back by command, as is said to be the way out.
			w.prepare(s, wish(1, "arc0-1"))
			c.spoil(w, record(s))
			w.must(os.Remove(cdi.ClaimFile(s.SpecDir, uid(1))))
			w.unprepare(w.store(), uid(1))
			w.holds(w.store(), map[int]int{2: 2, 3: 2})
		})
	}
}

func write(text string) func(*world, string) {
	return func(w *world, path string) { w.must(os.WriteFile(path, []byte(text), 0o644)) }
}

func replace(from, to string) func(*world, string) {
	return func(w *world, path string) {
		text := strings.Replace(string(w.read(path)), from, to, 1)
		if from == uid(1) {
			text = strings.ReplaceAll(text, from, to)
		}
		w.must(os.WriteFile(path, []byte(text), 0o644))
	}
}

// TestLostTables: a claim that is prepared is known to have lost its ring table, also when the kubelet asks for it once more, and not
// when it is prepared after that.
func TestLostTables(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	s.Root = host.Root(w.root)
	lost := func(when string, want bool) {
		t.Helper()
		if got, _ := cdi.RingTableNow(s.Root, w.inv, &w.inv.LPUs[1]); got != want {
			t.Errorf("%s: %t", when, got)
		}
	}
	w.prepare(s, wish(1, "arc0-1"))
	lost("prepared", false)
	table := filepath.Join(w.root, discovery.HyperdexRingTable)
	if err := errors.Join(os.WriteFile(table+".new", nil, 0o600), unix.Rename(table+".new", table)); err != nil {
		t.Fatal(err)
	}
	lost("another file took its place", true)
	w.prepare(s, wish(1, "arc0-1"))
	lost("asked for once more", true)
	w.unprepare(s, uid(1))
	w.prepare(s, wish(1, "arc0-1"))
	lost("prepared again", false)
}
