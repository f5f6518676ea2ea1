package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// RingTable is where HyperDex' program reads the ring table.
const RingTable = "/opt/hyperdex/hrt/xclbin/table.json"

// PrintTable prints the ring table that a container finds. It leaves nothing out that JSON needs.
const PrintTable = `[ ! -e ` + RingTable + ` ] || while read -r l || [ -n "$l" ]; do echo "table $l"; done < ` + RingTable

// PrintRing prints what HyperDex' program looks at in a container: the nodes that it can open, and the table.
const PrintRing = `for n in /dev/dri/*; do (exec 3<>$n) 2>/dev/null && echo "node $n"; done
` + PrintTable

// Server is what a simulated server really has.
type Server struct {
	Nodes  map[string]int  // the index of an LPU by the path of its node
	cables map[[2]int]bool // the second LPU is on the right of the first
}

// ringTable is HyperDex' ring table.
type ringTable struct {
	Network []struct {
		Src       int `json:"src_id"`
		Dst       int `json:"dst_id"`
		Direction string
	}
	NumDevice int `json:"num_device"`
}

// ServerOf is a simulated server, cabled as the host's ring table says.
func ServerOf(t *testing.T, root string) Server {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, RingTable))
	if err != nil {
		t.Fatal(err)
	}
	return NewServer(t, root, string(data))
}

// NewServer is a simulated server whose cables are those of a ring table.
func NewServer(t *testing.T, root, cabling string) Server {
	t.Helper()
	var inventory struct {
		LPUs []struct {
			Address string
			Nodes   []struct{ Path string }
		}
	}
	var host ringTable
	list := Lpuctl(t, "--root", root, "list", "-o", "json")
	if err := errors.Join(json.Unmarshal([]byte(list), &inventory), json.Unmarshal([]byte(cabling), &host)); err != nil {
		t.Fatal(err)
	}
	s := Server{map[string]int{}, map[[2]int]bool{}}
	for i, l := range inventory.LPUs {
		if i > 0 && l.Address <= inventory.LPUs[i-1].Address {
			t.Fatalf("LPU %d has the address %s", i, l.Address)
		}
		for _, n := range l.Nodes {
			s.Nodes[n.Path] = i
		}
	}
	for _, l := range host.Network {
		if l.Direction == "Right" {
			s.cables[[2]int{l.Src, l.Dst}] = true
		} else {
			s.cables[[2]int{l.Dst, l.Src}] = true
		}
	}
	return s
}

// InRings is the server if its LPUs are cabled in rings of some size, each to the next on its right.
func (s Server) InRings(size int) Server {
	cables := map[[2]int]bool{}
	for _, lpu := range s.Nodes {
		next := lpu + 1
		if next%size == 0 {
			next -= size
		}
		cables[[2]int{lpu, next}] = true
	}
	return Server{s.Nodes, cables}
}

// Right returns an error unless HyperDex' program, in a container that printed [PrintRing], has these LPUs and computes on all of them over
// cables that are there: as a ring if they are one, else as a line.
func (s Server) Right(printed string, lpus ...int) error {
	p, err := s.program(printed, lpus)
	if err != nil {
		return err
	}
	taken, ring, err := p.takes(len(lpus))
	if err == nil && (len(lpus) > 1 && ring != s.closed(lpus) || !slices.Equal(sorted(taken), p.cards)) {
		err = fmt.Errorf("it takes LPUs %v, as a ring: %v", taken, ring)
	}
	return err
}

// Apart returns an error unless the program has LPUs in some pieces, ends if it asks for all of them, and gets connected ones if it
// asks for as many as a piece has.
func (s Server) Apart(printed string, pieces ...[]int) error {
	p, err := s.program(printed, slices.Concat(pieces...))
	if err != nil {
		return err
	}
	if taken, _, err := p.takes(len(p.cards)); !errors.Is(err, errEnds) {
		return fmt.Errorf("it takes LPUs %v, which are not connected: %w", taken, err)
	}
	for _, piece := range pieces {
		taken, _, err := p.takes(len(piece))
		if err != nil || len(taken) != len(piece) {
			return fmt.Errorf("of %v it takes %v: %w", pieces, taken, err)
		}
	}
	return nil
}

// closed reports whether LPUs are a ring by themselves.
func (s Server) closed(lpus []int) bool {
	cables := 0
	for cable := range s.cables {
		if slices.Contains(lpus, cable[0]) && slices.Contains(lpus, cable[1]) {
			cables++
		}
	}
	return cables == len(lpus)
}

func sorted(list []int) []int { return slices.Sorted(slices.Values(list)) }

// program is HyperDex' program in a container.
type program struct {
	server Server
	cards  []int // the LPUs that it finds, in the order of their PCI addresses
	table  ringTable
}

// program is the program that finds what a container printed: some LPUs and a table.
func (s Server) program(printed string, lpus []int) (*program, error) {
	p := &program{server: s}
	var text strings.Builder
	for line := range strings.Lines(printed) {
		if node, ok := strings.CutPrefix(line, "node "); ok {
			lpu, ok := s.Nodes[strings.TrimSpace(node)]
			if !ok {
				return nil, fmt.Errorf("%s is the node of no LPU", node)
			}
			p.cards = append(p.cards, lpu)
		}
		if part, ok := strings.CutPrefix(line, "table "); ok {
			text.WriteString(part)
		}
	}
	slices.Sort(p.cards)
	if !slices.Equal(p.cards, sorted(lpus)) {
		return nil, fmt.Errorf("the container has LPUs %v, want %v", p.cards, lpus)
	}
	if err := json.Unmarshal([]byte(text.String()), &p.table); err != nil {
		return nil, fmt.Errorf("the ring table %q: %w", text.String(), err)
	}
	return p, nil
}

// errEnds is that the program ends, rather than that it computes over a cable that is not there.
var errEnds = errors.New("the program ends")

// takes returns which n LPUs the program computes on, in the order in which it takes them to be cabled, and whether it takes them for a
// ring. It is an error if one of the cables is not there.
func (p *program) takes(n int) (lpus []int, ring bool, err error) {
	first, err := p.first(n)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errEnds, err)
	}
	links := p.table.Network[first : first+n]
	for _, l := range links {
		lpus = append(lpus, p.cards[l.Src])
	}
	ring = n == p.table.NumDevice
	for i, l := range links {
		next := lpus[(i+1)%n]
		if n == 1 || i == n-1 && !ring {
			break
		}
		cable := [2]int{lpus[i], next}
		if l.Direction != "Right" {
			cable = [2]int{next, lpus[i]}
		}
		if !p.server.cables[cable] {
			err = errors.Join(err, fmt.Errorf("of LPUs %v %d has no cable on its %s to %d", lpus, lpus[i], l.Direction, next))
		}
	}
	return lpus, ring, err
}

// first returns the position in the table of the first of n LPUs that the program takes. It is written from the description of the
// program in docs/ring-notes.md, and not from lpuctl's own reader.
func (p *program) first(n int) (int, error) {
	count := p.table.NumDevice
	if count < 1 || count > len(p.table.Network) {
		return 0, fmt.Errorf("num_device is %d of %d links", count, len(p.table.Network))
	}
	for first := range count {
		in := 0 // a row
		for in < n && p.table.Network[(first+in)%count].Src < len(p.cards) {
			in++
		}
		switch {
		case first+in > count:
			return 0, fmt.Errorf("the row from link %d on goes past the end of the table", first)
		case in == n:
			return first, nil
		}
	}
	return 0, fmt.Errorf("there are no %d LPUs in a row", n)
}

// DevicesByIndex is the devices of a server's spec that are asked for by index, each with the indices of its LPUs.
func DevicesByIndex(t *testing.T, root string) map[string][]int {
	t.Helper()
	data, err := os.ReadFile(root + "/var/run/cdi/hyperaccel.ai-lpu.json")
	var spec struct {
		Devices []struct {
			Name           string
			ContainerEdits struct{ Env []string }
		}
	}
	if err := errors.Join(err, json.Unmarshal(data, &spec)); err != nil {
		t.Fatal(err)
	}
	devices := map[string][]int{}
	for _, d := range spec.Devices {
		for _, v := range d.ContainerEdits.Env {
			list, ok := strings.CutPrefix(v, "LPU_VISIBLE_DEVICES=")
			if !ok {
				continue
			}
			var lpus []int
			if err := json.Unmarshal([]byte("["+list+"]"), &lpus); err != nil {
				t.Fatal(err)
			}
			devices[d.Name] = lpus
		}
	}
	return devices
}

// ReplaceRingTable writes the host's ring table under a container that runs, and judges what the container reads. What is written in place
// changes nothing. What is renamed over the file detaches the container's own table: it reads the host's then, by which its LPUs have to
// be wrong.
func ReplaceRingTable(t *testing.T, root string, judge func() error) {
	t.Helper()
	host := root + RingTable
	if err := judge(); err != nil {
		t.Fatal(err)
	}
	Lpuctl(t, "--root", root, "ring", "convert", "--to", "hyperdex", "--output", host, host)
	if err := judge(); err != nil {
		t.Errorf("after the table is written in place: %v", err)
	}
	data, err := os.ReadFile(host)
	if err := errors.Join(err, os.WriteFile(host+".new", data, 0o644), os.Rename(host+".new", host)); err != nil {
		t.Fatal(err)
	}
	if err := judge(); err == nil || !strings.Contains(err.Error(), "has no cable") {
		t.Errorf("after another table is renamed over it: %v", err)
	}
}
