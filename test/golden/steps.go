package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// step is one command. Steps are run in order, since some of them write what later ones read.
type step struct {
	args     []string
	about    string                 // what the step is about, if another has the same arguments
	document bool                   // stdout is for programs
	before   func(dir string) error // what happens to the node before the step; nil: nothing
}

// script collects steps.
type script []step

// run adds a command whose stdout is for people.
func (s *script) run(command string) { *s = append(*s, step{args: strings.Fields(command)}) }

// document adds a command whose stdout is for programs.
func (s *script) document(command string) {
	*s = append(*s, step{args: strings.Fields(command), document: true})
}

// formats adds a command as it is and in the formats.
func (s *script) formats(command string, formats ...string) {
	s.run(command)
	for _, format := range formats {
		add := s.run
		if slices.Contains([]string{"json", "yaml", "name", "args"}, format) {
			add = s.document
		}
		add(command + " -o " + format)
	}
}

// every adds a command in all formats that several commands have, those that it refuses too, and in more.
func (s *script) every(command string, more ...string) {
	s.formats(command, slices.Concat([]string{"table", "wide", "json", "yaml", "name"}, more)...)
}

// damage changes the spec in place, if there is one, before the next command.
func (s *script) damage(change func([]byte) []byte, command string) {
	s.run(command)
	(*s)[len(*s)-1].before = func(dir string) error {
		path := filepath.Join(dir, "NODE/var/run/cdi/hyperaccel.ai-lpu.json")
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(data), 0o644)
	}
}

// nodeSteps are run on each node.
func nodeSteps() []step {
	var s script
	s.look()
	s.dra()
	s.spec()
	s.ring()
	return onNode(s)
}

// onNode lets each step look at the node. lpuctl dra has no flags: all behind it are of lpuctl-dra.
func onNode(s script) []step {
	for i := range s {
		at := 0
		if s[i].args[0] == "dra" {
			at = 1
		}
		s[i].args = slices.Insert(s[i].args, at, "--root", "NODE")
	}
	return s
}

// look adds the commands that only read.
func (s *script) look() {
	s.every("list")
	s.document("list --ring-table chain.yaml -o json")
	s.every("describe lpu0")
	for _, lpu := range []string{"2", "lpu5", "lpu9", "0000:86:00.1", "lpu99"} {
		s.formats("describe "+lpu, "json", "yaml")
	}
	s.every("topology", "matrix", "dot", "svg")
	s.run("topology --ring-table chain.yaml")
	s.every("allocate -n 2", "args")
	for _, want := range []string{
		"-n 1", "-n 4", "-n 3 --require-connected", "-n 8", "-n 2 --available lpu1,lpu2,lpu5", "-n 2 --available lpu0,lpu2 --require-connected",
		"-n 2 --must-include 3", "-n 4 --available 0,1,2,3,6,7 --must-include 0000:43:00.1,lpu7 --require-connected",
	} {
		s.formats("allocate "+want, "json", "name", "args")
	}
	for _, want := range []string{"", "-n 0", "-n 99", "-n two", "-n 2 --available lpu99", "-n 1 --must-include 0,1"} {
		s.run("allocate " + want)
	}
	s.every("config show")
	s.run("--config bad-config.yaml list")
	s.document("--config config.yaml config show")
	s.document("--config config.yaml cdi generate")
	s.document("--config config.yaml list -o json")
	s.every("runtime check")
	s.run("runtime check --spec-dir /opt/cdi")
	s.run("runtime check --containerd-config containerd.toml")
	s.run("runtime check --containerd-address NODE/run/none.sock")
	s.run("--quiet list")
	s.every("uncordon all") // cordon prints the time
}

// dra adds the documents of the DRA driver, which lies beside lpuctl.
func (s *script) dra() {
	s.every("dra slices --node-name n")
	s.document("dra slices --node-name n --sizes 1,2 -o yaml")
	s.run("dra slices --node-name n --sizes 3")
	s.document("dra slices --node-name n --ring-table chain.yaml -o json")
	s.every("dra claims")
	for _, file := range []string{"claims.yaml", "pods.yaml", "bad-claims.yaml", "nowhere.yaml"} {
		s.formats("dra plan "+file+" --node-name n", "json", "yaml")
	}
	s.run("--config bad-config.yaml dra slices")
	s.run("dra slices --config bad-config.yaml")
	s.document("dra slices --node-name n --config leases.yaml -o json")
}

// spec adds all about the CDI spec: none, one that is right, stale, damaged, in conflict with another, removed.
func (s *script) spec() {
	s.document("cdi generate")
	s.every("cdi generate")
	for _, flags := range []string{
		"--device lpu0", "--device lpu1 --device 0000:86:00.1", "--device lpu99", "--with-mgmt", "--unchecked-mounts", "--cdi-version 0.3.0",
		"--cdi-version 0.6.0", "--cdi-version 1.1.0", "--cdi-version 9.9.9", "--ring-table chain.yaml", "--output out.json", "--output out.yaml",
		"-o yaml --output out.json", "--output nowhere/out.json",
	} {
		s.document("cdi generate " + flags)
	}
	s.formats("cdi explain lpu0 lpu1", "json")
	s.document("cdi explain 0 2 pci-0000-43-00.1 -o yaml")
	s.every("cdi list")
	s.every("cdi diff")
	s.every("cdi validate")
	s.run("cdi refresh --dry-run")
	s.run("cdi refresh")
	s.run("cdi refresh")
	s.checkSpec()
	s.run("cdi validate --device lpu0")
	s.document("cdi validate --device hyperaccel.ai/lpu=lpu2 -o json")
	s.run("cdi validate --device lpu99")
	s.run("cdi validate --target podman=4.3.1,containerd=1.7.5")
	s.document("cdi validate --target cri-o=1.20.0 --target docker=24.0.0 -o json")
	s.run("cdi validate --target podman")
	s.run("cdi validate NODE/var/run/cdi")
	s.run("cdi refresh --with-mgmt --dry-run")
	s.damage(func(spec []byte) []byte { return bytes.ReplaceAll(spec, []byte(`"lpu1"`), []byte(`"card1"`)) }, "cdi refresh --dry-run")
	s.checkSpec()
	s.run("cdi refresh --with-mgmt --cdi-version 0.7.0")
	s.damage(func(spec []byte) []byte { return spec[:len(spec)/2] }, "cdi refresh --dry-run")
	s.checkSpec()
	s.run("cdi refresh")
	s.run("cdi refresh --spec-dir /etc/cdi")
	s.checkSpec()
	s.run("cdi remove --spec-dir /etc/cdi")
	s.run("--quiet cdi remove")
	s.run("cdi remove")
	s.document("cdi list -o name")
}

func (s *script) checkSpec() {
	s.formats("cdi list", "json", "yaml", "name")
	s.formats("cdi diff", "json", "yaml")
	s.formats("cdi validate", "json", "yaml")
}

// ring adds all about ring tables; the last commands change the node's own.
func (s *script) ring() {
	s.every("ring check")
	s.run("ring check --strict")
	s.formats("ring check --bind four.json", "json", "yaml")
	s.document("ring check --bind --strict chain.yaml -o json")
	for _, args := range []string{"", "chain.yaml", "broken.json"} {
		s.run("ring show " + args)
	}
	for _, args := range []string{
		"", "--to lpuctl", "--to xml", "--lpus lpu1,lpu2", "--lpus 0000:86:00.1,lpu0 --to lpuctl", "--lpus lpu99", "chain.yaml",
	} {
		s.document("ring convert " + args)
	}
	for _, args := range []string{"-n 8", "-n 4 --busy 0", "four.json -n 4", "broken.json", "chain.yaml", "nowhere.json"} {
		s.formats("ring read "+args, "json", "yaml")
	}
	s.run("ring install broken.json")
	for _, table := range []string{"chain.yaml", "addresses.yaml"} {
		s.run("ring install " + table)
		s.run("ring check")
		s.document("list -o json")
		s.document("topology -o json")
	}
	s.run("cdi refresh")
}

// plainSteps need no node.
func plainSteps() []step {
	var s script
	s.run("")
	s.every("version")
	s.run("--version")
	for _, shell := range []string{"bash", "fish", "powershell", "zsh", "csh", ""} {
		s.run("completion " + shell)
	}
	s.every("config check config.yaml")
	s.formats("config check bad-config.yaml", "json", "yaml")
	s.config()
	for _, file := range []string{"four.json", "broken.json", "chain.yaml", "bad-spec.json", "nowhere.json"} {
		s.formats("ring check "+file, "json", "yaml")
	}
	for _, file := range []string{"bad-spec.json", "specs", "specs/a.json", "four.json", "nowhere.json"} {
		s.formats("cdi validate "+file, "json", "yaml")
	}
	s.plan()
	s.document("ring convert four.json --to lpuctl")
	s.run("simulate --profile edge sim")
	for _, wrong := range []string{
		"frob", "lits", "list extra", "list --frob", "list -o xml", "describe", "describe lpu0 lpu1", "cdi frob", "ring", "--root nowhere list",
		"--log-level loud list", "--log-format xml list", "--config nowhere.yaml list", "serve extra", "serve --numa sometimes",
		"simulate --profile none sim2", "simulate --fault frob@1 sim2", "simulate", "runtime check extra", "help-tree extra",
	} {
		s.run(wrong)
	}
	return s
}

// config adds files with all faults of a kind that there can be in a config file.
func (s *script) config() {
	for _, file := range slices.Sorted(maps.Keys(badConfigs())) {
		s.formats("config check "+file, "json")
		s.run("--config " + file + " config show")
	}
	for _, file := range []string{"nowhere.yaml", "specs", "large.yaml"} {
		s.run("config check " + file)
	}
	(*s)[len(*s)-1].before = add(map[string]string{"large.yaml": strings.Repeat("# a word\n", 1<<17)})
	s.run("config check specs")
	(*s)[len(*s)-1].before = func(dir string) error { return os.Remove(filepath.Join(dir, "large.yaml")) }
}

// plan adds lpuctl-dra without a node.
func (s *script) plan() {
	for _, command := range []string{"", "slices ", "claims ", "plan ", "serve ", "version "} {
		s.run("dra " + command + "--help")
	}
	s.run("dra help-tree")
	for _, wrong := range []string{
		"", "frob", "slices extra", "slices --sizes 0", "slices --sizes two", "plan", "plan claims.yaml -o wide", "--root nowhere slices",
		"plan claims.yaml --slices claims.yaml", "plan claims.yaml --slices four.json", "plan four.json", "serve extra",
	} {
		s.run("dra " + wrong)
	}
	s.formats("dra plan claims.yaml --slices slices.yaml", "json")
	s.formats("dra plan pods.yaml --slices slices.yaml --claims claims.yaml", "json")
}
