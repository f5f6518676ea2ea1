package cdi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/libraries"
	"github.com/hyperaccel/lpuctl/test/long"
)

// cabling is a simulated server with one or two sick LPUs.
type cabling struct {
	root string
	file cdi.File
	inv  *discovery.Inventory
	// nodes are those of its LPUs before one became sick.
	nodes [][]discovery.Node
}

func newCabling(t *testing.T, sick ...int) *cabling {
	t.Helper()
	c := &cabling{}
	for _, faults := range [][]int{nil, sick} {
		c.root = filepath.Join(t.TempDir(), "node")
		n := simulate.Node{Profile: "orion", LPUs: 3}
		for _, i := range faults {
			fault, err := simulate.ParseFault(fmt.Sprintf("unbound@%d", i))
			if err != nil {
				t.Fatal(err)
			}
			n.Faults = append(n.Faults, fault)
		}
		_, err := n.Write(c.root)
		if err == nil {
			c.inv, err = discovery.Scan(t.Context(), c.root, discovery.Options{Management: true})
		}
		if err == nil {
			c.file, err = cdi.Locate(c.root, cdi.DefaultSpecDir, cdi.DefaultKind)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range c.inv.LPUs {
			if faults == nil {
				c.nodes = append(c.nodes, l.Nodes)
			}
		}
	}
	return c
}

// spec is the spec of the server as it is, or as it was when its LPUs had each other's nodes. Its
// nodes have numbers, so that the library injects them where they are not.
func (c *cabling) spec(t *testing.T, was []int) *specs.Spec {
	t.Helper()
	inv := *c.inv
	if was != nil {
		inv.LPUs = slices.Clone(inv.LPUs)
		for i := range inv.LPUs {
			inv.LPUs[i].Nodes = nil
			if was[i] >= 0 {
				inv.LPUs[i].Nodes = c.nodes[was[i]]
			}
		}
	}
	if err := unwritten(cdi.SpecAndTables(host.Root(c.root), &inv, cdi.Options{})); err != nil {
		t.Fatal(err)
	}
	spec, _, err := cdi.Spec(&inv, cdi.Options{})
	if errors.Is(err, cdi.ErrNoDevices) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			n.Type = "c"
			for _, nodes := range c.nodes {
				if nodes[0].Path == n.Path {
					n.Major, n.Minor = int64(nodes[0].Major), int64(nodes[0].Minor)
				}
			}
		}
	}
	return spec
}

// scatter puts files of ours and of others into both directories, as they may be left over.
func (c *cabling) scatter(t *testing.T, r *rand.Rand, releases []*libraries.Release) (orders []cdi.Order) {
	t.Helper()
	dirs := []string{"/etc/cdi", cdi.DefaultSpecDir}
	for _, dir := range dirs {
		if err := errors.Join(os.RemoveAll(filepath.Join(c.root, dir)), os.MkdirAll(filepath.Join(c.root, dir), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	was := func() []int {
		before := r.Perm(len(c.nodes))
		if r.IntN(2) == 0 { // only the sick ones had other nodes, or no node changed
			slices.Sort(before)
		}
		if r.IntN(4) == 0 {
			before[r.IntN(len(before))] = -1
		}
		return before
	}
	some := func(spec *specs.Spec) *specs.Spec {
		if spec == nil || r.IntN(3) == 0 {
			return spec
		}
		one := spec.Devices[r.IntN(len(spec.Devices))].Name
		spec.Devices = slices.DeleteFunc(spec.Devices, func(d specs.Device) bool { return d.Name != one && r.IntN(4) > 0 })
		return spec
	}
	write := func(path string, spec *specs.Spec) {
		if spec == nil {
			return
		}
		spec.Version = []string{"0.3.0", "0.5.0", "0.6.0", "0.8.0", "1.1.0"}[r.IntN(5)]
		if v := r.IntN(20); v == 0 {
			spec.Version = "9.9.9"
		}
		data, err := cdi.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		switch r.IntN(40) {
		case 0:
			data = data[:r.IntN(len(data))]
		case 1:
			data = nil
		case 2:
			data = []byte(strings.Replace(string(data), `"kind"`, `"Kind"`, 1))
		}
		put(t, path, string(data))
	}
	switch own := filepath.Join(c.root, dirs[1], "hyperaccel.ai-lpu.json"); r.IntN(8) {
	case 0:
	case 1:
		write(own, some(c.spec(t, was())))
	default:
		write(own, c.spec(t, nil))
	}
	for i := range r.IntN(3) {
		path := filepath.Join(c.root, dirs[r.IntN(2)], []string{"old.json", "a.yaml", "z.json", "hyperaccel.ai-lpu.json"}[r.IntN(4)])
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		spec := some(c.spec(t, was()))
		if i == 1 && r.IntN(3) == 0 && spec != nil {
			spec.Kind = "example.com/lpu"
		}
		write(path, spec)
	}
	if r.IntN(2) == 0 {
		slices.Reverse(dirs)
	}
	orders = []cdi.Order{{Runtime: "containerd 2.4.0", Library: releases[r.IntN(len(releases))].Name, Dirs: dirs}}
	switch r.IntN(4) {
	case 0:
		orders[0].Library = ""
	case 1:
		other := slices.Clone(dirs)
		slices.Reverse(other)
		orders = append(orders, cdi.Order{Runtime: "docker 29", Library: "1.1.1", Dirs: other})
	case 2:
		orders[0].Dirs = dirs[1:]
	}
	return orders
}

// injected is what a release of the library really gives containers: of each name, the positions of
// the LPUs whose nodes they get, and
// -1 for a node that is none's.
func (c *cabling) injected(t *testing.T, l *libraries.Release, order cdi.Order) map[string][]int {
	t.Helper()
	var dirs []string
	for _, dir := range order.Dirs {
		dirs = append(dirs, filepath.Join(c.root, dir))
	}
	lpus := map[string][]int{}
	for qualified, numbers := range l.Ask(t, dirs) {
		name, ours := strings.CutPrefix(qualified, cdi.DefaultKind+"=")
		if !ours {
			continue
		}
		lpus[name] = []int{}
		for _, number := range numbers {
			owner := slices.IndexFunc(c.inv.LPUs, func(l discovery.LPU) bool {
				return len(l.Nodes) > 0 && fmt.Sprintf("%d:%d", l.Nodes[0].Major, l.Nodes[0].Minor) == number
			})
			lpus[name] = append(lpus[name], owner)
		}
		slices.Sort(lpus[name])
	}
	return lpus
}

// broken reports whether the library refuses a file, or finds two that define one name.
func (c *cabling) broken(t *testing.T) bool {
	t.Helper()
	cache, err := library.NewCache(library.WithAutoRefresh(false),
		library.WithSpecDirs(filepath.Join(c.root, "/etc/cdi"), filepath.Join(c.root, cdi.DefaultSpecDir)))
	return err != nil || len(cache.GetErrors()) > 0
}

// members are the positions of the LPUs that a name of ours says.
func (c *cabling) members(name string) (list []int) {
	for i, l := range c.inv.LPUs {
		indices := strings.Split(strings.TrimPrefix(name, "lpu"), "-")
		if name == cdi.AddressName(l.Address) || name == "all" && len(l.Nodes) > 0 ||
			strings.HasPrefix(name, "lpu") && slices.Contains(indices, strconv.Itoa(i)) {
			list = append(list, i)
		}
	}
	return list
}

// TestStatesOfSpecs: in no state of the spec directories does a container get another LPU's node
// without an error of validate, and a fault that makes serve withhold the LPU; and there is no
// error where each name leads to its LPUs. What a container gets says the CDI library itself;
// test/e2e asks older releases of it too.
func TestStatesOfSpecs(t *testing.T) {
	states := long.Rounds(t, 400) // test/e2e looks at 2,000
	for _, sick := range [][]int{{0}, {1}, {2}, {0, 1}, {0, 2}} {
		t.Run(fmt.Sprint(sick), func(t *testing.T) {
			t.Parallel()
			checkStates(t, newCabling(t, sick...), states/5, rand.New(rand.NewPCG(25, uint64(10*len(sick)+sick[len(sick)-1]))))
		})
	}
}

func checkStates(t *testing.T, c *cabling, states int, r *rand.Rand) {
	t.Helper()
	wrong, well, releases := 0, 0, libraries.Start(t)
	for state := range states {
		orders := c.scatter(t, r, releases)
		v := cdi.Validator{Root: host.Root(c.root), Host: true, Kind: cdi.DefaultKind, Own: c.file.Path, Inventory: c.inv, Orders: orders}
		findings, err := v.Dirs([]string{"/etc/cdi", cdi.DefaultSpecDir})
		if err != nil {
			t.Fatal(err)
		}
		faults, err := c.file.Faults(c.inv, orders)
		if err != nil {
			t.Fatal(err)
		}
		own, _ := c.file.Drift(c.inv, c.spec(t, nil)) // a file that cannot be read is a finding
		var lost []string                             // names that lead to another LPU, which serve has to see
		isWell := !c.broken(t)                        // a file that nothing reads is to be removed all the same
		for _, order := range orders {
			isWell = isWell && order.Library != ""
			for _, l := range releases {
				if order.Library == "" || order.Library == l.Name {
					others, right := c.judge(t, c.injected(t, l, order))
					lost, isWell = append(lost, others...), isWell && right
				}
			}
		}
		seen := func(name string) bool {
			return slices.Contains(own.Wrong, name) || slices.ContainsFunc(faults, func(f finding.Finding) bool { return f.Subject == name })
		}
		switch unseen := slices.DeleteFunc(slices.Clone(lost), seen); {
		case len(lost) > 0 && !findings.HasErrors():
			t.Errorf("state %d: %s lead to another LPU, and validate has no error: %v\n%v", state, lost, orders, findings)
		case len(unseen) > 0:
			t.Errorf("state %d: %s lead to another LPU, and serve does not see it: %v\n%v", state, unseen, orders, faults)
		case isWell && (findings.HasErrors() || len(faults) > 0):
			t.Errorf("state %d: all is well, and there is an error: %v\n%v\n%v", state, orders, findings, faults)
		case len(lost) > 0:
			wrong++
		case isWell:
			well++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d states, in %d of them a name leads to another LPU, in %d all is well", states, wrong, well)
	if wrong < states/10 || well < states/20 {
		t.Error("they tell too little")
	}
}

// judge returns the names that lead to another LPU than theirs, and whether each name of a spec
// made now leads to its own.
func (c *cabling) judge(t *testing.T, gets map[string][]int) (others []string, right bool) {
	t.Helper()
	right = true
	for name, lpus := range gets {
		members := c.members(name)
		if slices.ContainsFunc(lpus, func(i int) bool { return i >= 0 && !slices.Contains(members, i) }) {
			others = append(others, name)
		}
		right = right && slices.Equal(lpus, members)
	}
	if now := c.spec(t, nil); now != nil {
		for _, d := range now.Devices {
			right = right && gets[d.Name] != nil
		}
	}
	return others, right
}
