package runtimes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestOthers(t *testing.T) {
	engine := "[engine]\ncdi_spec_dirs = [\"/etc/cdi\"]\n"
	const daemon, conf = "etc/docker/daemon.json", "etc/containers/containers.conf"
	for name, test := range map[string]struct {
		runtime, binary, pkg, version string
		files                         map[string]string
		want                          string // state, source, directories
		finds                         []string
	}{
		"docker 28.2": {"docker", "dockerd", "docker-ce", "5:28.2.2-1~debian.12", nil, "on default [/etc/cdi /var/run/cdi]", nil},
		"docker 28.2, off": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "{\n\"features\": {\n\"cdi\": false}}"}, "off files []", []string{"cdi-off:3"}},
		"docker 27": {"docker", "dockerd", "docker-ce", "27.3.1", nil, "off default []", []string{"cdi-off:0"}},
		"docker 27, on": {"docker", "dockerd", "docker-ce", "27.3.1",
			map[string]string{daemon: `{"features": {"cdi": true}}`}, "on files [/etc/cdi /var/run/cdi]", nil},
		"docker 27, features": {"docker", "dockerd", "docker-ce", "27.3.1",
			map[string]string{daemon: "{\n\n\"features\": {\"buildkit\": true}}"}, "off files []", []string{"cdi-off:3"}},
		"docker 20": {"docker", "dockerd", "docker.io", "20.10.24+dfsg1-1+deb12u1",
			nil, "unsupported default []", []string{"cdi-unsupported:0"}},
		"docker, no version": {"docker", "dockerd", "", "",
			map[string]string{daemon: `{"features": {"cdi": true}}`}, "unknown files []", []string{"version-unknown:0"}},
		"docker, dirs": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "{\"debug\": true,\n\"cdi-spec-dirs\": [\"/x\"]}"},
			"on default [/x]", []string{"spec-dir-not-read:2"}},
		"docker, dirs cleared": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: `{"cdi-spec-dirs": [""]}`}, "off files []", []string{"cdi-off:1"}},
		"docker, junk": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "{\n\"debug\": true,\n}"}, "off files []", []string{"config-refused:3"}},
		"docker, wrong type": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "{\n\"features\": {\"cdi\": \"true\"}}"}, "off files []", []string{"config-refused:2"}},
		"docker, another cdi": {"docker", "dockerd", "docker-ce", "27.0.0",
			map[string]string{daemon: "{\"log-opts\": {\"cdi\": \"x\"},\n\"features\": {\"cdi\": false}}"},
			"off files []", []string{"cdi-off:2"}},
		"docker, empty": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "\n"}, "on default [/etc/cdi /var/run/cdi]", nil},
		"podman 4.3": {"podman", "podman", "podman", "4.3.1+ds1-8+deb12u1+b3",
			map[string]string{"usr/share/containers/containers.conf": "[engine]\n"}, "on default [/etc/cdi /var/run/cdi]", nil},
		"podman 4.0": {"podman", "podman", "podman", "4.0.3", nil, "unsupported default []", []string{"cdi-unsupported:0"}},
		"podman 5.4 heeds none": {"podman", "podman", "podman", "5.4.0",
			map[string]string{conf: engine}, "on default [/etc/cdi /var/run/cdi]", nil},
		"podman 5.5": {"podman", "podman", "podman", "5.5.2", nil, "on default [/etc/cdi]", []string{"spec-dir-not-read:0"}},
		"podman 5.6, told": {"podman", "podman", "podman", "5.6.0",
			map[string]string{conf: engine}, "on files [/etc/cdi]", []string{"spec-dir-not-read:2"}},
		"podman 5.6, last wins": {"podman", "podman", "podman", "5.6.0", map[string]string{
			conf:                engine,
			conf + ".d/10.conf": strings.Replace(engine, "/etc/cdi", "/var/run/cdi", 1),
		}, "on files [/var/run/cdi]", nil},
		"podman, junk": {"podman", "podman", "podman", "5.6.0",
			map[string]string{conf: "[engine\n"}, "unknown files []", []string{"config-unreadable:1"}},
		"podman, wrong type": {"podman", "podman", "podman", "5.6.0",
			map[string]string{conf: "[engine]\ncdi_spec_dirs = 3\n"}, "unknown files []", []string{"config-unreadable:2"}},
		"podman, files alone": {"podman", "", "", "",
			map[string]string{conf: engine}, "unknown files []", []string{"version-unknown:0"}},
		"cri-o 1.30": {"cri-o", "crio", "cri-o", "1.30.0-1.1",
			map[string]string{"etc/crio/crio.conf.d/10-x": "[crio.runtime]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n"},
			"on files [/var/run/cdi]", nil},
		"cri-o 1.22": {"cri-o", "crio", "cri-o", "1.22.0", nil, "unsupported default []", []string{"cdi-unsupported:0"}},
		"nerdctl 2.2": {"nerdctl", "nerdctl", "nerdctl", "2.2.1",
			map[string]string{"etc/nerdctl/nerdctl.toml": "debug = false\ncdi_spec_dirs = [\"/x\"]\n"},
			"on files [/x]", []string{"spec-dir-not-read:2"}},
		"nerdctl 2.0": {"nerdctl", "nerdctl", "nerdctl", "2.0.2", nil, "unsupported default []", []string{"cdi-unsupported:0"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if test.binary != "" {
				writeFile(t, root, "usr/bin/"+test.binary, "")
			}
			status := fmt.Sprintf("Package: %s\nStatus: install ok installed\nVersion: %s\n", test.pkg, test.version)
			writeFile(t, root, "var/lib/dpkg/status", status)
			for name, text := range test.files {
				writeFile(t, root, name, text)
			}
			all := Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"})
			if len(all) != 1 || all[0].Name != test.runtime {
				t.Fatalf("found %v, want %s", all, test.runtime)
			}
			r := &all[0]
			if got := fmt.Sprintf("%s %s %v", r.CDI, r.Source, r.SpecDirs); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			var finds []string
			for _, f := range r.Findings {
				if f.Severity != "note" {
					finds = append(finds, fmt.Sprintf("%s:%d", f.ID, f.Line))
				}
			}
			if !slices.Equal(finds, test.finds) {
				t.Errorf("found %v, want %v\n%s", finds, test.finds, describe(root, r))
			}
		})
	}
}
