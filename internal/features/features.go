// Package features says what is known of a node's LPUs, and of its place in the network,
// as labels of Kubernetes, and writes them in the form that node-feature-discovery reads
// from its directory features.d (source "local").
//
// The labels are facts that stay the same while pods come and go and health changes. A
// card may be there and report nothing, because its driver is being loaded again or it
// hangs. Then what it reported last counts.
package features

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// The labels of the LPUs. A label is left out where nothing is known.
const (
	countLabel = "hyperaccel.ai/lpu.count" // LPUs in the machine, usable or not
	modelLabel = "hyperaccel.ai/lpu.model" // row of the model table
	// How many LPUs are cabled to each other, by group, largest first: "4_4".
	ringSizesLabel   = "hyperaccel.ai/lpu.ring.sizes"
	ringLargestLabel = "hyperaccel.ai/lpu.ring.largest" // the first of these
	driverLabel      = "hyperaccel.ai/lpu.driver"       // kernel driver
	// The version of its module, without the commit that xocl adds after a comma.
	driverVersionLabel = "hyperaccel.ai/lpu.driver.version"
	shellLabel         = "hyperaccel.ai/lpu.shell"        // name of the flashed shell
	numaNodesLabel     = "hyperaccel.ai/lpu.numa.nodes"   // how many NUMA nodes have LPUs
	numaLargestLabel   = "hyperaccel.ai/lpu.numa.largest" // LPUs on the NUMA node with the most
)

// Machine makes the labels of one machine, of which it is shown one inventory after the
// other. The zero value has seen none.
type Machine struct {
	told map[pci.Address]card // the cards that were there in the latest inventory
}

// card is what a card has reported of itself.
type card struct {
	model, driver, version, shell string
	numaNode                      *int
}

// take adds what a card reports now. What it does not report stays as it was; version and
// shell as long as it has no other driver.
func (c card) take(l *discovery.LPU) card {
	if l.Driver != "" && l.Driver != c.driver {
		c.version, c.shell = "", ""
	}
	version, _, _ := strings.Cut(l.DriverVersion, ",")
	return card{
		cmp.Or(l.Model, c.model), cmp.Or(l.Driver, c.driver), cmp.Or(version, c.version), cmp.Or(l.Shell, c.shell),
		cmp.Or(l.NUMANode, c.numaNode),
	}
}

// Labels returns the labels of the machine as the latest inventory shows it. They depend
// on the LPUs in the machine and on their cables, not on health, cordons or holders.
// Where LPUs differ, a label has all values, sorted and joined by underscores.
func (m *Machine) Labels(inv *discovery.Inventory) map[string]string {
	var present []int
	// A card that is gone is forgotten: the next one in its slot may be another one.
	told := map[pci.Address]card{}
	texts := map[string][]string{}
	perNUMANode := map[int]int{}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if l.Absent {
			continue
		}
		present = append(present, i)
		c := m.told[l.Address].take(l)
		told[l.Address] = c
		for key, text := range map[string]string{modelLabel: c.model, driverLabel: c.driver, driverVersionLabel: c.version, shellLabel: c.shell} {
			if text != "" {
				texts[key] = append(texts[key], text)
			}
		}
		if c.numaNode != nil {
			perNUMANode[*c.numaNode]++
		}
	}
	m.told = told
	labels := map[string]string{countLabel: strconv.Itoa(len(present))}
	for key, list := range texts {
		slices.Sort(list)
		if value := labelValue(strings.Join(slices.Compact(list), "_")); value != "" {
			labels[key] = value
		}
	}
	if len(perNUMANode) > 0 {
		labels[numaNodesLabel] = strconv.Itoa(len(perNUMANode))
		labels[numaLargestLabel] = strconv.Itoa(slices.Max(slices.Collect(maps.Values(perNUMANode))))
	}
	if fabric := inv.Cabled(); fabric.Cabled() && len(present) > 0 {
		labels[ringSizesLabel], labels[ringLargestLabel] = sizes(fabric.FreeArcs(present))
	}
	return labels
}

// sizes are the lengths of arcs as the two labels say them.
func sizes(arcs [][]int) (all, largest string) {
	slices.SortFunc(arcs, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	var texts []string
	for _, arc := range arcs {
		texts = append(texts, strconv.Itoa(len(arc)))
	}
	return labelValue(strings.Join(texts, "_")), texts[0]
}

// valueMax is how many characters the value of a label can have, and the part of its key
// after the slash.
const valueMax = 63

// labelValue makes the value of a label of a text that the hardware or a driver says.
// Each character that a value cannot have becomes an underscore, what is longer than 63
// characters is cut off, and what is no letter and no digit goes from both ends.
func labelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		if alphanumeric(r) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, text)
	odd := func(r rune) bool { return !alphanumeric(r) }
	value = strings.TrimLeftFunc(value, odd)
	return strings.TrimRightFunc(value[:min(len(value), valueMax)], odd)
}

func alphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// MaxSize is how many bytes of a feature file node-feature-discovery reads; it passes
// over a larger one.
const MaxSize = 64 << 10

// expiryDirective begins the first line of a file. It holds for all lines after it.
const expiryDirective = "# +expiry-time="

// Text is a feature file whose lines count until a time, in whole seconds.
func Text(expiry time.Time, body string) []byte {
	return []byte(expiryDirective + expiry.UTC().Format(time.RFC3339) + "\n" + body)
}

// Body is a feature file without its first line: what does not change with time. Where
// sets have the same key, the later one counts.
func Body(sets ...map[string]string) string {
	all := map[string]string{}
	for _, set := range sets {
		maps.Copy(all, set)
	}
	var body strings.Builder
	body.WriteString("# Written by lpuctl serve, which writes it again.\n")
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&body, "%s=%s\n", key, all[key])
	}
	return body.String()
}

// Split takes a feature file that File has made apart. The error says that it is none.
func Split(file []byte) (expiry time.Time, body string, err error) {
	first, body, found := strings.Cut(string(file), "\n")
	text, directive := strings.CutPrefix(first, expiryDirective)
	if !found || !directive {
		return time.Time{}, "", errors.New("its first line is not " + expiryDirective + "TIME")
	}
	expiry, err = time.Parse(time.RFC3339, text)
	return expiry, body, err
}
