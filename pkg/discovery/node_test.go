package discovery

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// The third card of the captured machine, and what leads to its node uio6 and to others.
const (
	cardAbove  = "../../devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:02.0/"
	ownDevice  = "-> " + cardAbove + "0000:45:00.1/uio/uio6"
	nextDevice = "-> ../../devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:03.0/0000:46:00.1/uio/uio7"
)

// inDev makes the status of a file in /dev.
func inDev(kind uint32, major, minor uint32) unix.Stat_t {
	return unix.Stat_t{Mode: kind | 0o666, Rdev: unix.Mkdev(major, minor), Ino: uint64(major<<20 | minor)}
}

// thirdLPU scans the captured machine after its sys/dev/char was given some links. Of /dev, lstat tells about the nodes of the
// third card and about uio7.
func thirdLPU(t *testing.T, root string, links map[string]string, rules []string, lstat func(path string) (unix.Stat_t, error)) LPU {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(root, CharDevices)); err != nil {
		t.Fatal(err)
	}
	for numbers, target := range links {
		plant.File(t, filepath.Join(root, CharDevices, numbers), target)
	}
	models := captureModels()
	if rules != nil {
		models[0].Nodes = rules
	}
	tree, err := host.Root(root).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	s := newScan(tree, Options{Models: models})
	s.seesDev = lstat != nil
	s.lstat = func(path string) (unix.Stat_t, error) {
		if path != "/dev/uio6" && path != "/dev/0000:45:00.1" && path != "/dev/uio7" {
			return unix.Stat_t{}, fs.ErrPermission // of no interest here
		}
		return lstat(path)
	}
	inv, err := s.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return inv.LPUs[2]
}

// TestWhoseNodeItIs: a node is verified only if /dev and the kernel's links both say that it is the LPU's.
func TestWhoseNodeItIs(t *testing.T) {
	dev := func(kind, major, minor uint32) func(string) (unix.Stat_t, error) {
		return func(string) (unix.Stat_t, error) { return inDev(kind, major, minor), nil }
	}
	refused := func(err error) func(string) (unix.Stat_t, error) {
		return func(string) (unix.Stat_t, error) { return unix.Stat_t{}, err }
	}
	own := map[string]string{"245:6": ownDevice, "245:7": nextDevice}
	with := func(target string) map[string]string {
		return map[string]string{"245:6": target, "1:3": "-> ../../devices/virtual/mem/null"}
	}
	node := dev(unix.S_IFCHR, 245, 6)
	byPath, next := []string{"path:/dev/{address}"}, []string{"path:/dev/uio7"}
	root := plant.Capture(t, u55c)
	for name, c := range map[string]struct {
		links map[string]string
		rules []string // nil: class:uio
		lstat func(path string) (unix.Stat_t, error)
		want  string // "verified", "unverified", or the id and a part of the message of the reason
	}{
		"the LPU's":                     {own, nil, node, "verified"},
		"of the LPU's function itself":  {with("-> " + cardAbove + "0000:45:00.1"), nil, node, "verified"},
		"an old tree without links":     {nil, nil, node, "unverified"},
		"no /dev":                       {own, nil, nil, "unverified"},
		"/dev that may not be read":     {own, nil, refused(fs.ErrPermission), "unverified"},
		"no such numbers":               {map[string]string{"245:7": nextDevice}, nil, node, "node-foreign: no device of these numbers"},
		"no such numbers and no /dev":   {map[string]string{"245:7": nextDevice}, nil, nil, "node-foreign: no device of these numbers"},
		"another card's":                {with(nextDevice), nil, node, "node-foreign: belongs to 0000:46:00.1"},
		"another card's and no /dev":    {with(nextDevice), nil, nil, "node-foreign: belongs to 0000:46:00.1"},
		"another's, /dev not read":      {with(nextDevice), nil, refused(fs.ErrPermission), "node-foreign: belongs to 0000:46:00.1"},
		"of the card's other function":  {with("-> " + cardAbove + "0000:45:00.0/uio/uio0"), nil, node, "node-foreign: belongs to 0000:45:00.0"},
		"of a function of similar name": {with("-> " + cardAbove + "0000:45:00.10/x"), nil, node, "node-foreign: belongs to 0000:42:02.0"},
		"of no function":                {with("-> ../../devices/virtual/misc/fuse"), nil, node, "node-foreign: /virtual/misc/fuse"},
		"out of the root":               {with("-> ../../../../../../../dev/null"), nil, node, "node-foreign: belongs to /dev/null"},
		"no link":                       {with("245:6\n"), nil, node, "node-foreign: not known whose"},
		"missing":                       {own, nil, refused(fs.ErrNotExist), "node-missing: /dev/uio6"},
		"other numbers":                 {own, nil, dev(unix.S_IFCHR, 245, 7), "node-mismatch: is device 245:7"},
		"a block device":                {own, nil, dev(unix.S_IFBLK, 245, 6), "node-mismatch: a device, not a character device"},
		"a FIFO":                        {own, nil, dev(unix.S_IFIFO, 245, 6), "node-mismatch: a FIFO"},
		"a link":                        {own, nil, dev(unix.S_IFLNK, 245, 6), "node-mismatch: a symbolic link"},
		"a file":                        {own, nil, dev(unix.S_IFREG, 245, 6), "node-mismatch: a regular file"},

		"by path":                             {own, byPath, node, "verified"},
		"by path, with another card's number": {own, byPath, dev(unix.S_IFCHR, 245, 7), "node-foreign: belongs to 0000:46:00.1"},
		"by path, another card's":             {own, next, dev(unix.S_IFCHR, 245, 7), "node-foreign: belongs to 0000:46:00.1"},
		"by path, a block device":             {own, byPath, dev(unix.S_IFBLK, 245, 6), "node-mismatch: a device"},
		"by path, in an old tree":             {nil, byPath, node, "unverified"},
		"by path, no /dev":                    {own, byPath, nil, "unverified"},
		"by path, /dev that may not be read":  {own, byPath, refused(fs.ErrPermission), "unverified"},
		"by path, null":                       {with(ownDevice), byPath, dev(unix.S_IFCHR, 1, 3), "node-foreign: /sys/devices/virtual/mem/null"},
	} {
		t.Run(name, func(t *testing.T) { expectNode(t, thirdLPU(t, root, c.links, c.rules, c.lstat), c.want) })
	}
}

func expectNode(t *testing.T, l LPU, want string) {
	t.Helper()
	id, message, isReason := strings.Cut(want, ": ")
	if isReason {
		r := l.Reasons
		if len(l.Nodes) != 0 || l.Usable || len(r) != 1 || string(r[0].ID) != id || !strings.Contains(r[0].Message, message) {
			t.Errorf("nodes %+v, reasons %+v, want %s", l.Nodes, l.Reasons, want)
		}
		return
	}
	if len(l.Nodes) != 1 || !l.Usable || len(l.Reasons) != 0 || l.Nodes[0].Verified != (want == "verified") {
		t.Errorf("nodes %+v, reasons %+v, want %s", l.Nodes, l.Reasons, want)
	}
	if want == "verified" && (l.Nodes[0].Major != 245 || l.Nodes[0].Minor != 6) {
		t.Errorf("node %+v", l.Nodes[0])
	}
}

// TestNodesThatChangeMeanwhile: drivers are loaded again at any moment, also between two reads of one node.
func TestNodesThatChangeMeanwhile(t *testing.T) {
	own := map[string]string{"245:6": ownDevice, "245:7": nextDevice}
	root := plant.Capture(t, u55c)
	nth := func(minors ...uint32) func(string) (unix.Stat_t, error) {
		return func(path string) (unix.Stat_t, error) {
			if path != "/dev/uio6" && path != "/dev/0000:45:00.1" {
				return unix.Stat_t{}, fs.ErrPermission
			}
			minor := minors[0]
			if len(minors) > 1 {
				minors = minors[1:]
			}
			return inDev(unix.S_IFCHR, 245, minor), nil
		}
	}
	var once sync.Once // the cards are read side by side
	swap := func(string) (unix.Stat_t, error) {
		once.Do(func() {
			link := filepath.Join(root, CharDevices, "245:6")
			if err := os.Remove(link); err != nil {
				t.Error(err)
			}
			plant.File(t, link, nextDevice)
		})
		return inDev(unix.S_IFCHR, 245, 6), nil
	}
	for name, c := range map[string]struct {
		rules []string
		lstat func(path string) (unix.Stat_t, error)
		want  string
	}{
		"another card's, after the numbers were asked for": {[]string{"path:/dev/{address}"}, nth(6, 7), "node-foreign: belongs to 0000:46:00.1"},
		"and the LPU's again":                              {[]string{"path:/dev/{address}"}, nth(6, 7, 6), "verified"},
		"other numbers afterwards":                         {nil, nth(6, 7), "node-mismatch: is device 245:7"},
		"all the time":                                     {nil, nth(6, 7, 6, 7, 6, 7, 6), "node-mismatch: again and again"},
		"the numbers go to another card":                   {nil, swap, "node-foreign: belongs to 0000:46:00.1"},
	} {
		t.Run(name, func(t *testing.T) { expectNode(t, thirdLPU(t, root, own, c.rules, c.lstat), c.want) })
	}
}

// TestNumbersThatAreNone: a class device whose dev says nothing of use is a fault, with and without /dev.
func TestNumbersThatAreNone(t *testing.T) {
	root := plant.Capture(t, u55c)
	dev := filepath.Join(root, "sys/class/uio/uio6/dev")
	for _, text := range []string{
		"0:0\n", "\n", "", "0:6\n", "245\n", "245:\n", ":6\n", "a:b\n", "245:6:7\n",
		"-1:6\n", "4096:6\n", "245:1048576\n",
	} {
		if err := os.WriteFile(dev, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		l := scanOf(t, root, captureModels()).LPUs[2]
		if len(l.Nodes) != 0 || l.Usable || len(l.Reasons) != 1 || l.Reasons[0].ID != "bad-node" {
			t.Errorf("%q: nodes %+v, reasons %+v", text, l.Nodes, l.Reasons)
		}
	}
}

// TestManagementNodes: a node of the management function has to be that function's.
func TestManagementNodes(t *testing.T) {
	for device, want := range map[string]int{"0000:45:00.0": 1, "0000:45:00.1": 0} {
		root := plant.Capture(t, u55c)
		plant.File(t, filepath.Join(root, "sys/class/manage/m2"), "-> "+cardAbove+"0000:45:00.0/manage/m2")
		card := filepath.Join(root, "sys/dev/char", cardAbove)
		plant.File(t, filepath.Join(card, "0000:45:00.0/manage/m2/dev"), "250:2\n")
		for numbers, target := range map[string]string{"250:2": "-> " + cardAbove + device + "/manage/m2", "245:6": ownDevice} {
			plant.File(t, filepath.Join(root, CharDevices, numbers), target)
		}
		models := captureModels()
		models[0].Management.Nodes = []string{"class:manage"}
		inv, err := Scan(context.Background(), root, Options{Models: models, Management: true})
		if err != nil {
			t.Fatal(err)
		}
		if l := inv.LPUs[2]; l.Management == nil || len(l.Management.Nodes) != want || !l.Usable || len(l.Nodes) != 1 {
			t.Errorf("%s: %+v", device, l)
		}
	}
}

func TestPathRulesStayInDev(t *testing.T) {
	for rule, want := range map[string]bool{
		"path:/dev/lpu{index}": true, "path:/dev/a/../lpu{index}": true,
		"path:/dev/../etc/lpu{index}": false, "path:/dev/..": false, "path:/dev/": false, "path:dev/lpu0": false,
	} {
		m := Model{Name: "x", Nodes: []string{rule}}
		if got := len(m.Validate()) == 0; got != want {
			t.Errorf("%s: accepted %v", rule, got)
		}
	}
}
