package broken

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/long"
)

// healthy is a node on which nothing is to be found.
type healthy struct {
	tree   string // arguments of lpuctl simulate
	before string // what it has before its spec is written
	after  string
}

func (h *healthy) try(t *testing.T) {
	t.Helper()
	n := simulate(t, strings.Fields(h.tree)...)
	n.sh(t, h.before)
	n.run(t, program, "--quiet", "cdi", "refresh")
	n.sh(t, h.after)
	n.well(t)
	if t.Failed() {
		t.Logf("lpuctl simulate node %s\n%s\nlpuctl cdi refresh\n%s", h.tree, h.before, h.after)
	}
}

// What healthy nodes have, in the words of their packages and administrators.
const (
	noTable    = "rm -f $TABLE\n"
	containerd = "[plugins.\"io.containerd.grpc.v1.cri\"]\n"
	foreignCDI = `mkdir -p $ROOT/etc/cdi; printf '{"cdiVersion": "0.5.0", "kind": "example.com/nic", "devices": [{"name": "n0", ` +
		`"containerEdits": {"env": ["NIC=0"]}}]}' > $ROOT/etc/cdi/example.com-nic.json` + "\n"
	bothDirs = "mkdir -p $ROOT/etc/lpuctl $ROOT/etc/cdi; echo 'cdi: {specDir: /etc/cdi}' >> $ROOT/etc/lpuctl/config.yaml\n"
)

// toml gives containerd a config file.
func toml(lines string) string {
	return "put /etc/containerd/config.toml <<'END'\n" + lines + "\nEND\n"
}

// installed are runtimes that have CDI on, each as one of its releases has it.
func installed() []string {
	features := `echo '{"features": {"cdi": true}, "log-driver": "local"}' | put /etc/docker/daemon.json` + "\n"
	all := []string{
		"has containerd containerd 1.7.0\n" + toml("version = 2\n"+containerd+"  enable_cdi = true"),
		"has containerd containerd.io 1.7.27-1\n" +
			toml("version = 2\n"+containerd+"enable_cdi = true\ncdi_spec_dirs = [\"/etc/cdi\", \"/var/run/cdi\"]"),
		"has containerd containerd 1.7.24~ds1-6\n" + toml("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]") +
			"printf 'version = 2\\n[plugins.\"io.containerd.grpc.v1.cri\"]\\nenable_cdi = true\\n' | put /etc/containerd/conf.d/cdi.toml\n",
		"has containerd containerd.io 2.0.4-1\n",
		"has containerd containerd.io 2.1.0-1\n" + toml("version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true"),
		"has containerd containerd.io 2.2.0-1\n" + toml("version = 3"),
	}
	for _, release := range []string{"4.3.1+ds1-8+deb12u1", "4.9.3+ds1-1", "5.0.3", "5.4.2", "5.6.0", "5.8.2"} {
		all = append(all, "has podman podman "+release+"\n")
	}
	all = append(all, "has podman podman 5.5.0\n"+
		`printf '[engine]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n' | put /etc/containers/containers.conf`+"\n")
	for _, release := range []string{"5:25.0.5-1", "5:26.1.4-1", "5:27.5.1-1"} {
		all = append(all, "has dockerd docker-ce "+release+"\n"+features)
	}
	for _, release := range []string{"5:28.2.0-1", "5:28.5.2-1", "5:29.0.0-1"} {
		all = append(all, "has dockerd docker-ce "+release+"\n")
	}
	for _, release := range []string{"1.26.4", "1.30.0-1.1", "1.33.2"} {
		all = append(all, "has crio cri-o "+release+"\n")
	}
	return all
}

// kinds are ten kinds of healthy nodes, and more.
func kinds() map[string]healthy {
	all := map[string]healthy{
		"orion":                {},
		"orion with one LPU":   {tree: "--lpus 1"},
		"two rings":            {tree: "--lpus 16"},
		"lpu":                  {tree: "--profile lpu"},
		"bertha":               {tree: "--profile bertha --lpus 4"},
		"edge":                 {tree: "--profile edge"},
		"no ring table":        {tree: "--lpus 4", before: noTable},
		"a table by address":   {tree: "--lpus 4", before: byName},
		"two spec directories": {tree: "--lpus 4", before: bothDirs + foreignCDI + installed()[1]},
		"cordoned":             {tree: "--lpus 4", after: "lpuctl cordon lpu1 --reason 'a fan is changed'"},
		"cordoned and not":     {tree: "--lpus 4", after: "lpuctl cordon lpu1 --reason test; lpuctl uncordon all"},
		"all that is here":     {tree: "--lpus 4", before: foreignCDI + installed()[3] + installed()[7] + installed()[len(installed())-4]},
	}
	for i, runtime := range installed() {
		all[fmt.Sprint("runtime ", i)] = healthy{tree: "--profile lpu --lpus 1", before: runtime}
	}
	return all
}

// TestHealthy: on a node that is in order, doctor finds nothing that is more than a note.
func TestHealthy(t *testing.T) {
	for name, h := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.try(t)
		})
	}
}

// TestAnyHealthy is TestHealthy of random configurations: a part of a thousand, and all of them where LPUCTL_LONG is set.
func TestAnyHealthy(t *testing.T) {
	seeds := long.Rand(t)
	for i := range 1000 {
		seed := seeds.Uint64()
		if !long.Takes(i, 16) {
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			h := anyHealthy(rand.New(rand.NewPCG(seed, 0)))
			h.try(t)
		})
	}
}

// anyHealthy is a healthy node out of everything that a node may have.
func anyHealthy(r *rand.Rand) (h healthy) {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	profile := one("orion", "orion", "lpu", "bertha", "edge")
	lpus := 1 + r.IntN(8)
	if profile == "edge" {
		lpus = 1 + r.IntN(2)
	}
	h.tree = fmt.Sprintf("--profile %s --lpus %d", profile, lpus)
	if r.IntN(4) == 0 {
		h.before += noTable
	}
	if r.IntN(3) == 0 {
		h.before += foreignCDI
	}
	if r.IntN(4) == 0 {
		h.before += bothDirs
	}
	seen := map[string]bool{}
	for range r.IntN(4) {
		runtime := one(installed()...)
		if name, _, _ := strings.Cut(strings.TrimPrefix(runtime, "has "), " "); !seen[name] {
			seen[name] = true
			h.before += runtime
		}
	}
	if r.IntN(3) == 0 {
		h.after += fmt.Sprintf("lpuctl cordon lpu%d --reason test\n", r.IntN(lpus))
	}
	if r.IntN(3) == 0 {
		h.after += "lpuctl cdi refresh\n"
	}
	if r.IntN(3) == 0 {
		h.after += "mkdir -p $SPECS; : > $SPECS/.hidden; : > $SPECS/README\n"
	}
	return h
}
