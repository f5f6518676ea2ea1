package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkRingTableMount is what one more mount, of a ring table over the file in the host's directory, costs `runc run`: the median of
// the differences of pairs in turn, and the interval that the median lies in with 95 in 100.
func BenchmarkRingTableMount(b *testing.B) {
	if obstacle != nil {
		b.Skip(obstacle)
	}
	with, without := bundle(b, true), bundle(b, false)
	run := func(dir string) time.Duration {
		began := time.Now()
		if out, err := exec.Command("runc", "run", "--bundle", dir, filepath.Base(dir)).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began)
	}
	run(with)
	run(without)
	const pairs, low, high = 101, 40, 60 // ranks of the interval, from 0, by the binomial distribution
	var differences, all []time.Duration
	for i := range pairs {
		first, second := without, with
		if i%2 == 1 {
			first, second = with, without
		}
		one, two := run(first), run(second)
		if i%2 == 1 {
			one, two = two, one
		}
		differences, all = append(differences, two-one), append(all, one)
	}
	for b.Loop() { // all is measured
	}
	slices.Sort(differences)
	slices.Sort(all)
	for name, d := range map[string]time.Duration{
		"ms/run": all[pairs/2], "ms/mount": differences[pairs/2], "ms/mount-low": differences[low], "ms/mount-high": differences[high],
	} {
		b.ReportMetric(float64(d.Microseconds())/1000, name)
	}
	b.ReportMetric(0, "ns/op")
}

// bundle is a container of busybox that ends at once, with the host's directory of HyperDex, and with a ring table over its table.
func bundle(b *testing.B, table bool) string {
	b.Helper()
	dir := b.TempDir()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		b.Skip("missing: busybox (apt-get install busybox-static)")
	}
	program, err := os.ReadFile(busybox)
	hyperdex, own := filepath.Join(dir, "hyperdex"), filepath.Join(dir, "own.json")
	err = errors.Join(err, os.MkdirAll(filepath.Join(dir, "rootfs/bin"), 0o755), os.MkdirAll(hyperdex, 0o755),
		os.WriteFile(filepath.Join(dir, "rootfs/bin/true"), program, 0o755),
		os.WriteFile(filepath.Join(hyperdex, "table.json"), []byte(plain), 0o644), os.WriteFile(own, []byte(plain), 0o644))
	if err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command("runc", "spec", "--bundle", dir).CombinedOutput(); err != nil {
		b.Skipf("missing: runc (apt-get install runc): %s", out)
	}
	config := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(config)
	var spec map[string]any
	if err := errors.Join(err, json.Unmarshal(data, &spec)); err != nil {
		b.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["args"], process["terminal"] = []string{"/bin/true"}, false
	delete(process, "rlimits")
	mount := func(from, to string) any {
		return map[string]any{"source": from, "destination": to, "type": "bind", "options": []string{"ro", "nosuid", "nodev", "bind"}}
	}
	mounts := append(spec["mounts"].([]any), mount(hyperdex, "/opt/hyperdex"))
	if table {
		mounts = append(mounts, mount(own, "/opt/hyperdex/table.json"))
	}
	spec["mounts"] = mounts
	data, err = json.Marshal(spec)
	if err := errors.Join(err, os.WriteFile(config, data, 0o644)); err != nil {
		b.Fatal(err)
	}
	return dir
}
