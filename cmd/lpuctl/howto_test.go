package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/docs"
)

// TestHowtos: what lpuctl prints in pages about a host is what it prints on a simulated node.
func TestHowtos(t *testing.T) {
	const network = "/tmp/hyperdex/xclbin"
	const shuffled = `{"network": [{"src_id": 0, "dst_id": 1, "direction": "Right"}, {"src_id": 2, "dst_id": 3, "direction": "Right"},
		{"src_id": 1, "dst_id": 2, "direction": "Right"}, {"src_id": 3, "dst_id": 0, "direction": "Right"}], "num_device": 4}`
	for page, profile := range map[string]string{
		"howto-bertha.md":           "--profile bertha --lpus 2",
		"howto-driver-upgrade.md":   "",
		"howto-new-cabling.md":      "",
		"howto-replace-a-card.md":   "",
		"howto-selinux-apparmor.md": "",
		"health.md":                 "--lpus 2 --fault firewall@1",
		"ring.md":                   "",
	} {
		t.Run(page, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "node")
			output(t, "lpuctl --quiet simulate "+root+" "+profile, nil)
			output(t, "lpuctl --quiet --root "+root+" cdi refresh", nil)
			if table, err := os.ReadFile(root + "/opt/hyperdex/hrt/xclbin/table.json"); err == nil {
				if err := os.WriteFile(dir+"/table_bdf.json", table, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(dir+"/shuffled.json", []byte(shuffled), 0o644); err != nil {
				t.Fatal(err)
			}
			here := strings.NewReplacer(network, dir, "shuffled.json", dir+"/shuffled.json")
			there := strings.NewReplacer(root, "", dir+"/shuffled.json", "shuffled.json", dir, network)
			commands := 0
			path := "../../docs/" + page
			pageIs(t, path, docs.Replay(readText(t, path), func(command string) (string, bool) {
				commands++
				command = here.Replace(ours.ReplaceAllString(command, "lpuctl "))
				return ofThisMachine.ReplaceAllString(there.Replace(output(t, command, []string{"LPUCTL_ROOT=" + root})), ""), true
			}))
			if commands == 0 {
				t.Errorf("%s has no command", path)
			}
		})
	}
}
