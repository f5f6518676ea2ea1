package discovery

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestReplayUsers: who used LPUs is found on a copy of a machine, and what was not seen there.
func TestReplayUsers(t *testing.T) {
	node := func() *Inventory {
		return &Inventory{LPUs: []LPU{
			{Name: "lpu0", Address: pci.Address{Bus: 1}, Nodes: []Node{{Path: "/dev/lpu0"}}},
			{Name: "lpu1", Address: pci.Address{Bus: 2}, Nodes: []Node{{Path: "/dev/lpu1"}}},
		}}
	}
	root := plant.Tree(t, map[string]string{"proc/12/fd/3": "-> /dev/lpu0", "proc/12/comm": "vllm\n"}) // without process 2
	there := node()
	text, err := json.Marshal(RecordUsers(t.Context(), root, there))
	if err != nil {
		t.Fatal(err)
	}
	var r RecordedUsers
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	end := ReplayUsers(copied, r)
	here := node()
	FindUsers(t.Context(), copied, here)
	want, _ := json.Marshal(there)
	if have, _ := json.Marshal(here); !bytes.Equal(have, want) || len(here.LPUs[0].Users) != 1 || !here.LPUs[1].UsersHidden {
		t.Errorf("%s, want %s", have, want)
	}
	end()
	if FindUsers(t.Context(), copied, here); len(here.LPUs[0].Users) > 0 {
		t.Error("the replay has not ended")
	}
}
