package features

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
)

// Topology says where nodes are in the network. It is the same for all nodes of a
// cluster.
type Topology []Entry

// Entry gives labels to nodes.
type Entry struct {
	Nodes  []string          `json:"nodes"`  // names of nodes, or patterns of path.Match
	Labels map[string]string `json:"labels"` // by key; the short keys are switch, rack and spine
}

// topologyPrefix is that of the short keys.
const topologyPrefix = "topology.hyperaccel.ai/"

// shortKeys are the keys that stand for one with topologyPrefix.
func shortKeys() []string { return []string{"switch", "rack", "spine"} }

// entryMax is how many labels an entry can have. A file with so many, each as long as it
// can be, has less than half of MaxSize.
const entryMax = 64

// AmbiguousError says that two entries match one node.
type AmbiguousError struct {
	Node          string
	First, Second int // positions of the entries, from 0
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("topology.%d and topology.%d both match node %s", e.First, e.Second, e.Node)
}

// Labels returns the labels of a node, with whole keys, and the position of the entry
// that has them; -1 and none if no entry matches. The error is an *AmbiguousError if more
// than one does.
func (t Topology) Labels(node string) (labels map[string]string, entry int, err error) {
	entry = -1
	for i, e := range t {
		switch {
		case !e.matches(node):
		case entry >= 0:
			return nil, -1, &AmbiguousError{node, entry, i}
		default:
			entry = i
		}
	}
	if entry < 0 {
		return nil, -1, nil
	}
	labels = map[string]string{}
	for key, value := range t[entry].Labels {
		labels[wholeKey(key)] = value
	}
	return labels, entry, nil
}

// matches reports whether a name or pattern of an entry matches a node.
func (e *Entry) matches(node string) bool {
	return slices.ContainsFunc(e.Nodes, func(pattern string) bool {
		ok, _ := path.Match(pattern, node)
		return ok
	})
}

// isPattern reports whether a name can match another one than itself.
func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

func wholeKey(key string) string {
	if slices.Contains(shortKeys(), key) {
		return topologyPrefix + key
	}
	return key
}

// Validate returns all that is wrong with a topology, whatever nodes there are. Paths are
// relative to it; place names an entry, by its position, where a fault is about two. Two
// patterns may match the same name as long as there is no such node: Labels returns an
// error for such a node.
func (t Topology) Validate(place func(entry int) string) strictyaml.Faults {
	var c checker
	for i := range t {
		at := strconv.Itoa(i)
		c.nodes(at+".nodes", t[i].Nodes)
		c.labels(at+".labels", t[i].Labels)
	}
	if len(c.Faults) == 0 {
		c.overlaps(t, place)
	}
	return c.Faults
}

// checker collects the faults of a topology.
type checker struct{ strictyaml.Faults }

var (
	// nodeName is a DNS subdomain.
	nodeName      = lazy.Regexp(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	qualifiedName = lazy.Regexp(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	noNodeName    = lazy.Regexp(`[^-a-z0-9.*?\[\]\\^]`)
)

// nameMax is how many characters the name of a node can have, and the part of a label's
// key before the slash.
const nameMax = 253

// CheckNodeName returns an error if no node of Kubernetes can have a name.
func CheckNodeName(name string) error {
	if !nodeName().MatchString(name) || len(name) > nameMax {
		return fmt.Errorf("%.80q cannot be the name of a node: it has lower case letters, digits, '-' and '.' only", name)
	}
	return nil
}

func (c *checker) nodes(at string, names []string) {
	if len(names) == 0 {
		c.Add(at, "it names no node", "write names of nodes, or patterns such as node-a*")
	}
	for i, name := range names {
		at := at + "." + strconv.Itoa(i)
		if !isPattern(name) {
			if err := CheckNodeName(name); err != nil {
				c.Add(at, err.Error(), "write it as kubectl get nodes does")
			}
			continue
		}
		if _, err := path.Match(name, ""); err != nil || name == "" {
			c.Add(at, fmt.Sprintf("%.80q is not a pattern", name), "close its brackets: node-[0-9]*")
		} else if odd := noNodeName().FindString(name); odd != "" {
			c.Add(at, fmt.Sprintf("%.80q matches no node, because no name of one has %q", name, odd), "write it as kubectl get nodes does")
		}
	}
}

func (c *checker) labels(at string, labels map[string]string) {
	if len(labels) == 0 {
		c.Add(at, "it has no label", "write one, such as switch: leaf-7")
	}
	if len(labels) > entryMax {
		c.Add(at, fmt.Sprintf("it has %d labels, and an entry can have %d", len(labels), entryMax), "leave some out")
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := at + "." + key
		if message, remedy := checkKey(key); message != "" {
			c.Add(at, fmt.Sprintf("%.80q is %s", key, message), remedy)
		} else if message, remedy := checkValue(labels[key]); message != "" {
			c.Add(at, fmt.Sprintf("the value of %s: %s", key, message), remedy)
		}
		if _, twice := labels[wholeKey(key)]; twice && wholeKey(key) != key {
			c.Add(at, fmt.Sprintf("%s stands for %s, which is there too", key, wholeKey(key)), "keep one of them")
		}
	}
}

// checkKey says what a key is that cannot be one of a label, and what to write; "" if it
// can.
func checkKey(key string) (message, remedy string) {
	if slices.Contains(shortKeys(), key) {
		return "", ""
	}
	prefix, name, whole := strings.Cut(key, "/")
	under := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	const example = "write PREFIX/NAME, such as example.com/rack"
	switch {
	case !whole:
		return "neither switch, rack or spine nor a whole key",
			"write it with a domain of yours in front: example.com/" + cmp.Or(labelValue(key), "NAME")
	case !nodeName().MatchString(prefix) || len(prefix) > nameMax:
		return "not the key of a label: before the slash is a domain of at most 253 lower case letters, digits, '-' and '.'", example
	case !qualifiedName().MatchString(name):
		return "not the key of a label: after the slash are at most 63 letters, digits, '-', '_' and '.', " +
			"with a letter or digit at both ends", example
	// These are node-feature-discovery's own.
	case under("feature.node.kubernetes.io") || under("profile.node.kubernetes.io"):
		return "", ""
	case under("kubernetes.io"):
		return "under kubernetes.io, which is Kubernetes' own: node-feature-discovery drops such a label",
			instead(name)
	case under("k8s.io"):
		return "under k8s.io, which is Kubernetes' own", instead(name)
	case prefix == "hyperaccel.ai":
		return "under hyperaccel.ai, where lpuctl serve writes labels of its own", instead(name)
	}
	return "", ""
}

// instead says what to write for the name of a key that cannot be used.
func instead(name string) string {
	if slices.Contains(shortKeys(), name) {
		return "write " + name
	}
	return "write a domain of yours in front: example.com/" + name
}

// checkValue says why a value cannot be one of a label, and what to write; "" if it can.
func checkValue(value string) (message, remedy string) {
	switch {
	case value == "":
		return "it is empty", "write a value, or remove the label"
	case !qualifiedName().MatchString(value): // a value that is not empty has the form of a name
		return fmt.Sprintf("%.80q is not the value of a label: it has at most 63 letters, digits, '-', '_' and '.', with a letter or "+
			"digit at both ends", value), "write " + cmp.Or(labelValue(value), "another one")
	}
	return "", ""
}

// overlaps finds a node by name that another entry has by name or by pattern. There may
// be thousands of names, and few patterns.
func (c *checker) overlaps(t Topology, place func(entry int) string) {
	type match struct {
		entry int
		by    string
	}
	first, patterns := map[string]int{}, []match(nil)
	for i := range t {
		for _, name := range t[i].Nodes {
			if _, known := first[name]; isPattern(name) {
				patterns = append(patterns, match{i, name})
			} else if !known {
				first[name] = i
			}
		}
	}
	for i := range t {
		for j, name := range t[i].Nodes {
			if isPattern(name) {
				continue
			}
			var others []match
			if k := first[name]; k < i { // of two equal names the second one is reported
				others = append(others, match{k, name})
			}
			for _, p := range patterns {
				if ok, _ := path.Match(p.by, name); ok && p.entry != i {
					others = append(others, p)
				}
			}
			for _, o := range others {
				c.Add(fmt.Sprintf("%d.nodes.%d", i, j), fmt.Sprintf("node %s is matched by %q of another entry too, that of %s", name, o.by,
					place(o.entry)), "take it out of one of them")
			}
		}
	}
}
