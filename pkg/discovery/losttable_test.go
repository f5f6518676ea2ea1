package discovery

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// Mounts as a runtime makes them, in the order in which the kernel lists them.
const (
	hostMounts = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:6 / /dev rw shared:2 - devtmpfs udev rw\n" +
		"3 1 8:2 / /opt rw shared:3 - ext4 /dev/sda2 rw\n"
	rootMount    = "50 49 0:60 / / rw master:1 - overlay overlay rw,lowerdir=/a:/b\n51 50 0:61 / /dev rw - tmpfs tmpfs rw\n"
	oneNode      = "52 51 0:6 /lpu1 /dev/lpu1 rw - devtmpfs udev rw\n"
	otherNode    = "53 51 0:6 /lpu0 /dev/lpu0 rw - devtmpfs udev rw\n"
	hyperdex     = "54 50 8:2 /hyperdex /opt/hyperdex ro,nosuid - ext4 /dev/sda2 rw\n"
	ownTable     = "55 54 0:25 /lpuctl/ring/ab.json /opt/hyperdex/hrt/xclbin/table.json ro - tmpfs tmpfs rw\n"
	allOfOpt     = "54 50 8:2 / /opt ro - ext4 /dev/sda2 rw\n"
	otherLibrary = "54 50 8:2 /hyperdex-1.2 /opt/hyperdex ro - ext4 /dev/sda2 rw\n"
	hiddenTable  = "56 50 0:70 / /opt rw - tmpfs tmpfs rw\n"
)

// TestLostTables: a container that has some LPUs and reads the table of the host is named.
func TestLostTables(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const lost = "sh(12) container 0123456789ab: it has lpu1 and reads " + HyperdexRingTable +
		" of the host, where its LPUs may have other numbers"
	place := TablePlace{Path: HyperdexRingTable, HostPath: HyperdexRingTable}
	for name, c := range map[string]struct {
		mounts string
		place  TablePlace // the zero value: that of HyperDex
		want   string
	}{
		"it has its own table":        {mounts: rootMount + oneNode + hyperdex + ownTable},
		"its table was detached":      {mounts: rootMount + oneNode + hyperdex, want: lost},
		"it has /opt of the host":     {mounts: rootMount + oneNode + allOfOpt, want: lost},
		"mounts are in another order": {mounts: hyperdex + oneNode + rootMount, want: lost},
		"a table in another order":    {mounts: ownTable + hyperdex + oneNode + rootMount},
		"another HyperDex":            {mounts: rootMount + oneNode + otherLibrary},
		"no HyperDex":                 {mounts: rootMount + oneNode},
		"the table cannot be seen":    {mounts: rootMount + oneNode + hyperdex + hiddenTable},
		"it has no LPU":               {mounts: rootMount + hyperdex},
		"it has all LPUs":             {mounts: rootMount + oneNode + otherNode + hyperdex},
		"there are no tables":         {mounts: rootMount + oneNode + hyperdex, place: TablePlace{Path: HyperdexRingTable}},
		"no table can be mounted":     {mounts: rootMount + oneNode + hyperdex, place: TablePlace{place.Path, place.HostPath, "is a link"}},
		"junk":                        {mounts: "1\n2 3 - x\n50 50 0:1 / / - x\n51 52 0:1 / / rw - x x rw\n52 51 0:1 / / rw - x x rw\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.place == (TablePlace{}) {
				c.place = place
			}
			root := plant.Tree(t, map[string]string{
				"proc/1/mountinfo": hostMounts, "proc/1/ns/mnt": "-> mnt:[1]",
				"proc/11/mountinfo": hostMounts, "proc/11/ns/mnt": "-> mnt:[1]", // on the host
				"proc/12/mountinfo": c.mounts, "proc/12/ns/mnt": "-> mnt:[2]", "proc/12/comm": "sh\n",
				"proc/12/cgroup":    "0::/machine.slice/libpod-" + id + ".scope/container",
				"proc/13/mountinfo": c.mounts, "proc/13/ns/mnt": "-> mnt:[2]", // of the same container
				"proc/14/comm": "sh\n", // of another user
			})
			inv := &Inventory{LPUs: []LPU{
				{Name: "lpu0", Nodes: []Node{{Path: "/dev/lpu0"}}, Equipment: Equipment{RingTable: c.place}},
				{Name: "lpu1", Nodes: []Node{{Path: "/dev/lpu1"}}, Equipment: Equipment{RingTable: c.place}},
				{Name: "lpu2", Equipment: Equipment{RingTable: c.place}},
			}}
			var got []string
			for _, f := range LostTables(t.Context(), root, inv) {
				got = append(got, f.Subject+": "+f.Message)
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestLostTableRemedy: the remedy depends on what runs the container.
func TestLostTableRemedy(t *testing.T) {
	for want, u := range map[string]User{
		"delete the pod": {Pod: "a", Container: strings.Repeat("a", 64)}, "start the container": {Container: strings.Repeat("a", 64)},
		"start the program": {Command: "vllm"},
	} {
		if f := lostTable(u, HyperdexRingTable, nil); f.ID != finding.RingTableDetached || !strings.HasPrefix(f.Remedy, want) {
			t.Errorf("%+v", f)
		}
	}
}

// TestDetachedByTheKernel: a program in mounts of its own has a table over the host's. To write the host's in place leaves it there,
// and to put another file in its place takes it away.
func TestDetachedByTheKernel(t *testing.T) {
	if exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", "/tmp").Run() != nil {
		t.Skip("only root can mount")
	}
	dir := plant.Tree(t, map[string]string{"hyperdex/hrt/xclbin/table.json": "host's", "own.json": "own"})
	table := filepath.Join(dir, "hyperdex/hrt/xclbin/table.json")
	inv := &Inventory{}
	for i, node := range []Node{{Path: "/dev/null", Major: 1, Minor: 3}, {Path: "/dev/zero", Major: 1, Minor: 5}} {
		inv.LPUs = append(inv.LPUs, LPU{
			Name: fmt.Sprintf("lpu%d", i), Nodes: []Node{node},
			Equipment: Equipment{RingTable: TablePlace{Path: "/mnt/hyperdex/hrt/xclbin/table.json", HostPath: table}},
		})
	}
	lost := func() int { return len(LostTables(t.Context(), "/", inv)) }

	cmd := exec.Command("unshare", "-m", "sh", "-ec", `mount -t tmpfs none /mnt
mkdir /mnt/hyperdex
mount --bind "$0/hyperdex" /mnt/hyperdex
mount --bind "$0/own.json" /mnt/hyperdex/hrt/xclbin/table.json
mount -t tmpfs none /dev
mknod /dev/zero c 1 5
echo ready
read -r _ || true
cat /mnt/hyperdex/hrt/xclbin/table.json`, dir)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil {
		t.Fatal(inErr, outErr)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if n := lost(); n != 0 {
		t.Errorf("%d have lost their table at the start", n)
	}
	if err := os.WriteFile(table, []byte("host's, in place"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := lost(); n != 0 {
		t.Errorf("%d have lost their table when the host's was written in place", n)
	}
	plant.File(t, table+".new", "host's, another file")
	if err := unix.Rename(table+".new", table); err != nil {
		t.Fatal(err)
	}
	if n := lost(); n != 1 {
		t.Errorf("%d have lost their table to a rename, want 1", n)
	}
	_ = in.Close()
	if reads, _ := io.ReadAll(said); string(reads) != "host's, another file" {
		t.Errorf("the program reads %q", reads)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := lost(); n != 0 {
		t.Errorf("%d have lost their table when nothing runs any more", n)
	}
}
