package runtimes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hyperaccel/lpuctl/internal/host"
)

func TestOthers(t *testing.T) {
	engine := "[engine]\ncdi_spec_dirs = [\"/etc/cdi\"]\n"
	const daemon, conf, unit = "etc/docker/daemon.json", "etc/containers/containers.conf", "lib/systemd/system/docker.service"
	const home, crioUnit = "root/.config/containers/containers.conf", "usr/lib/systemd/system/crio.service"
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
		"docker, unknown key": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "{\n\"debug\": true,\n\"cdi-dirs\": [\"/etc/cdi\"]}"}, "off files []", []string{"config-refused:3"}},
		"docker, keys in a table": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: `{"proxies": {"http-proxy": "http://p"}, "log-opts": {"max-size": "1m"}, "registry-mirrors": []}`},
			"on default [/etc/cdi /var/run/cdi]", nil},
		"docker, unknown key in a table": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{daemon: "{\"proxies\": {\n\"http\": \"http://p\"}}"}, "off files []", []string{"config-refused:2"}},
		"docker, byte order mark": {"docker", "dockerd", "docker-ce", "27.0.0",
			map[string]string{daemon: "\ufeff{\"features\": {\"cdi\": true}}"}, "on files [/etc/cdi /var/run/cdi]", nil},
		"docker, UTF-16": {"docker", "dockerd", "docker-ce", "27.0.0",
			map[string]string{daemon: "\xff\xfe{\x00}\x00"}, "unknown files []", []string{"config-unreadable:0"}},
		"docker, flag of the unit": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{unit: "[Service]\nExecStart=/usr/bin/dockerd -H fd:// --cdi-spec-dir=/x --cdi-spec-dir /y\n"},
			"on default [/x /y]", []string{"spec-dir-not-read:0"}},
		"docker, flag of a drop-in": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{
				unit: "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
				"etc/systemd/system/docker.service.d/own.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --feature cdi=false\n",
			}, "off files []", []string{"cdi-off:0"}},
		"docker, another file": {"docker", "dockerd", "docker-ce", "27.3.1",
			map[string]string{
				unit:         "[Service]\nEnvironment=\"OPTIONS=--config-file /srv/d.json\"\nExecStart=/usr/bin/dockerd $OPTIONS\n",
				"srv/d.json": `{"features": {"cdi": true}}`,
			}, "on files [/etc/cdi /var/run/cdi]", nil},
		"docker, running": {"docker", "dockerd", "docker-ce", "27.3.1",
			map[string]string{
				unit:          "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
				"proc/9/comm": "dockerd\n", "proc/9/cmdline": "dockerd\x00--feature\x00cdi=true\x00",
			}, "on files [/etc/cdi /var/run/cdi]", nil},
		"docker, running in a container": {"docker", "dockerd", "docker-ce", "27.3.1",
			map[string]string{
				unit:          "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
				"proc/9/comm": "dockerd\n", "proc/9/cmdline": "dockerd\x00--feature\x00cdi=true\x00",
				"proc/9/status": "Name:\tdockerd\nUid:\t0\t0\nNSpid:\t9\t1\n",
			}, "off default []", []string{"cdi-off:0"}},
		"docker, running beside one in a container": {"docker", "dockerd", "docker-ce", "27.3.1",
			map[string]string{
				unit:          "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
				"proc/8/comm": "dockerd\n", "proc/8/cmdline": "dockerd\x00", "proc/8/status": "NSpid:\t8\t1\n",
				"proc/9/comm": "dockerd\n", "proc/9/cmdline": "dockerd\x00--feature\x00cdi=true\x00",
				"proc/9/status": "Name:\tdockerd\nUid:\t0\t0\nNSpid:\t9\n",
			}, "on files [/etc/cdi /var/run/cdi]", nil},
		"docker, in both places": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{
				unit:   "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
				daemon: "{\n\"hosts\": [\"fd://\"]}",
			}, "off files []", []string{"config-refused:2"}},
		"podman 5.6, appends": {"podman", "podman", "podman", "5.6.0",
			map[string]string{conf: "[engine]\ncdi_spec_dirs = [\"/x\", {append = true}]\n"}, "on files [/etc/cdi /var/run/cdi /x]", nil},
		"podman 5.5, appends twice": {"podman", "podman", "podman", "5.5.0",
			map[string]string{
				conf:                "[engine]\ncdi_spec_dirs = [{append = true}, \"/x\"]\n",
				conf + ".d/10.conf": "[engine]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n",
			}, "on files [/etc/cdi /x /var/run/cdi]", nil},
		"podman, another attribute": {"podman", "podman", "podman", "5.6.0",
			map[string]string{conf: "[engine]\ncdi_spec_dirs = [\"/x\", {prepend = true}]\n"}, "off files []", []string{"config-refused:2"}},
		"cri-o, a directory below": {"cri-o", "crio", "cri-o", "1.31.0",
			map[string]string{
				"etc/crio/crio.conf.d/10-x":        "[crio.runtime]\ncdi_spec_dirs = [\"/x\"]\n",
				"etc/crio/crio.conf.d/20-y/z.conf": "[crio.runtime]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n",
			}, "on files [/var/run/cdi]", nil},
		"cri-o 1.24": {"cri-o", "crio", "cri-o", "1.24.0", nil, "on default [/etc/cdi /var/run/cdi]", []string{"spec-dir-not-read:0"}},
		"cri-o 1.24, both directories": {"cri-o", "crio", "cri-o", "1.24.0",
			map[string]string{"etc/cdi/a.txt": ""}, "on default [/etc/cdi /var/run/cdi]", nil},
		"podman 4.2": {"podman", "podman", "podman", "4.2.1", nil, "on default [/etc/cdi /var/run/cdi]", []string{"spec-dir-not-read:0"}},
		"podman 4.2, both directories": {"podman", "podman", "podman", "4.2.1",
			map[string]string{"etc/cdi/a.txt": ""}, "on default [/etc/cdi /var/run/cdi]", nil},
		"cri-o 1.23": {"cri-o", "crio", "cri-o", "1.23.0", nil, "unsupported default []", []string{"cdi-unsupported:0"}},
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
			map[string]string{conf: "[engine\n"}, "off files []", []string{"config-refused:1"}},
		"podman, wrong type": {"podman", "podman", "podman", "5.6.0",
			map[string]string{conf: "[engine]\ncdi_spec_dirs = 3\n"}, "off files []", []string{"config-refused:2"}},
		"podman, files alone": {"podman", "", "", "",
			map[string]string{conf: engine}, "unknown files []", []string{"version-unknown:0"}},
		"cri-o 1.30": {"cri-o", "crio", "cri-o", "1.30.0-1.1",
			map[string]string{"etc/crio/crio.conf.d/10-x": "[crio.runtime]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n"},
			"on files [/var/run/cdi]", nil},
		"cri-o, a flag of its unit": {"cri-o", "crio", "cri-o", "1.31.0", map[string]string{
			crioUnit: "[Service]\nEnvironment=CONTAINER_CDI_SPEC_DIRS=/env\n" +
				"ExecStart=/usr/bin/crio --cdi-spec-dirs=/x,\\s/var/run/cdi --cdi-spec-dirs /y\n",
			"etc/crio/crio.conf": "[crio.runtime]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n",
		}, "on files [/x /var/run/cdi /y]", nil},
		"cri-o, a variable of its file": {"cri-o", "crio", "cri-o", "1.31.0", map[string]string{
			crioUnit: "[Service]\nEnvironment=CONTAINER_CDI_SPEC_DIRS=/unit\nEnvironmentFile=-/etc/sysconfig/crio\n" +
				"ExecStart=/usr/bin/crio\n",
			"etc/sysconfig/crio": "CONTAINER_CDI_SPEC_DIRS=/etc/cdi\n",
		}, "on files [/etc/cdi]", []string{"spec-dir-not-read:0"}},
		"cri-o, a config of its own": {"cri-o", "crio", "cri-o", "1.31.0", map[string]string{
			crioUnit: "[Service]\nEnvironment=\"OPTIONS=-c /srv/crio.conf --config-dir=/srv/crio.d\"\n" +
				"ExecStart=/usr/bin/crio $OPTIONS\n",
			"etc/crio/crio.conf": "[crio.runtime]\ncdi_spec_dirs = [\"/etc/cdi\"]\n",
			"srv/crio.conf":      "[crio.runtime]\ncdi_spec_dirs = [\"/srv\"]\n",
			"srv/crio.d/x":       "[crio.runtime]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n",
		}, "on files [/var/run/cdi]", nil},
		"cri-o, a config that is not there": {"cri-o", "crio", "cri-o", "1.31.0", map[string]string{
			crioUnit: "[Service]\nEnvironment=CONTAINER_CONFIG=/srv/crio.conf\nExecStart=/usr/bin/crio\n",
		}, "off files []", []string{"config-refused:0"}},
		"cri-o, junk": {"cri-o", "crio", "cri-o", "1.31.0",
			map[string]string{"etc/crio/crio.conf": "[crio.runtime\n"}, "off files []", []string{"config-refused:1"}},
		"cri-o, running": {"cri-o", "crio", "cri-o", "1.31.0", map[string]string{
			crioUnit:      "[Service]\nExecStart=/usr/bin/crio --cdi-spec-dirs=/etc/cdi\n",
			"proc/9/comm": "crio\n", "proc/9/cmdline": "crio\x00", "proc/9/environ": "A=\x00CONTAINER_CDI_SPEC_DIRS=/var/run/cdi\x00",
		}, "on files [/var/run/cdi]", nil},
		"cri-o, a unit that does not start": {"cri-o", "crio", "cri-o", "1.31.0",
			map[string]string{crioUnit: "[Service]\nEnvironmentFile=/none\nExecStart=/usr/bin/crio\n"},
			"off files []", []string{"config-refused:0"}},
		"docker, a unit that does not start": {"docker", "dockerd", "docker-ce", "28.2.2",
			map[string]string{unit: "[Service]\nEnvironmentFile=/none\nExecStart=/usr/bin/dockerd\n"}, "off files []", []string{"config-refused:0"}},
		"podman 4.3, wrong type elsewhere": {"podman", "podman", "podman", "4.3.1",
			map[string]string{conf: "[containers]\n\npids_limit = \"many\"\n"}, "off files []", []string{"config-refused:3"}},
		"podman 4.3, in a drop-in": {"podman", "podman", "podman", "4.3.1",
			map[string]string{conf + ".d/x.conf": "[ENGINE]\nRuntimes = {runc = \"x\"}\n"}, "off files []", []string{"config-refused:2"}},
		"podman 4.3, no table": {"podman", "podman", "podman", "4.3.1",
			map[string]string{conf: "engine = 3\n"}, "off files []", []string{"config-refused:1"}},
		"podman 4.3, what it does not know": {"podman", "podman", "podman", "4.3.1",
			map[string]string{conf: "x = 1\n[engine]\nretry = \"x\"\ncdi_spec_dirs = 3\n[containers]\nlog_size_max = -1\n"},
			"on default [/etc/cdi /var/run/cdi]", nil},
		"podman 5.0 knows it": {"podman", "podman", "podman", "5.0.0",
			map[string]string{conf: "[engine]\nretry = \"x\"\n"}, "off files []", []string{"config-refused:2"}},
		"podman 4.7, no attributes": {"podman", "podman", "podman", "4.7.0",
			map[string]string{conf: "[containers]\nenv = [\"A=1\", {append = true}]\n"}, "off files []", []string{"config-refused:2"}},
		"podman 4.8, attributes": {"podman", "podman", "podman", "4.8.0",
			map[string]string{conf: "[containers]\nenv = [\"A=1\", {append = true}]\n"}, "on default [/etc/cdi /var/run/cdi]", nil},
		"podman 5.8, root's home": {"podman", "podman", "podman", "5.8.2", map[string]string{
			conf: "[engine]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n", home: engine,
		}, "on files [/etc/cdi]", []string{"spec-dir-not-read:2"}},
		"podman 5.8, a drop-in in root's home": {"podman", "podman", "podman", "5.8.2", map[string]string{
			home: engine, home + ".d/x.conf": "[engine]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n",
		}, "on files [/var/run/cdi]", nil},
		"podman 4.9, root's home": {"podman", "podman", "podman", "4.9.4",
			map[string]string{home: "[engine]\nnum_locks = true\n"}, "on default [/etc/cdi /var/run/cdi]", nil},
		"podman 6, one main file": {"podman", "podman", "podman", "6.0.0", map[string]string{
			conf: engine, home: "[engine]\n", conf + ".d/x.conf": "[engine]\ncdi_spec_dirs = [\"/x\"]\n",
			home + ".d/x.conf": "[engine]\n", "etc/containers/containers.rootful.conf.d/a.conf": "[engine]\ncdi_spec_dirs = [\"/var/run/cdi\"]\n",
		}, "on files [/var/run/cdi]", nil},
		"docker 27, restarts": {"docker", "dockerd", "docker-ce", "27.3.1", map[string]string{
			daemon: `{"features": {"cdi": true}, "data-root": "/srv"}`,
			"srv/containers/0123456789abcdef/hostconfig.json": `{"RestartPolicy":{"Name":"unless-stopped"},"DeviceRequests":[{"Driver":"cdi"}]}`,
		}, "on files [/etc/cdi /var/run/cdi]", []string{"restart-changes:0"}},
		"docker 27, restarts without devices": {"docker", "dockerd", "docker-ce", "27.3.1", map[string]string{
			daemon: `{"features": {"cdi": true}}`,
			"var/lib/docker/containers/a/hostconfig.json": `{"RestartPolicy":{"Name":"always"},"DeviceRequests":null}`,
			"var/lib/docker/containers/b/hostconfig.json": `{"RestartPolicy":{"Name":"no"},"DeviceRequests":[{"Driver":"cdi"}]}`,
		}, "on files [/etc/cdi /var/run/cdi]", nil},
		"docker 27, a container that is cut": {"docker", "dockerd", "docker-ce", "27.3.1", map[string]string{
			daemon: `{"features": {"cdi": true}}`, "var/lib/docker/containers/a/hostconfig.json": `{"RestartPolicy":{"Na`,
		}, "on files [/etc/cdi /var/run/cdi]", []string{"config-unreadable:0"}},
		"docker 28.2, restarts": {"docker", "dockerd", "docker-ce", "28.2.0", map[string]string{
			"var/lib/docker/containers/a/hostconfig.json": `{"RestartPolicy":{"Name":"always"},"DeviceRequests":[{"Driver":"cdi"}]}`,
		}, "on default [/etc/cdi /var/run/cdi]", nil},
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

// A link below a directory of CRI-O is a file, as for CRI-O, and none leads in a circle.
func TestLinksOfCRIO(t *testing.T) {
	root := t.TempDir()
	const dir = "/etc/crio/crio.conf.d"
	writeFile(t, root, "srv/x.conf", "")
	writeFile(t, root, dir+"/d/y.conf", "")
	for _, link := range [][2]string{{".", "a"}, {".", "b"}, {"../../../srv/x.conf", "c.conf"}, {"nowhere", "e"}, {"..", "d/z"}} {
		if err := os.Symlink(link[0], filepath.Join(root, dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	c := &checker{machine: machine{host.Root(root)}}
	files, err := c.filesBelow(dir)
	want := []string{dir + "/a", dir + "/b", dir + "/c.conf", dir + "/d/y.conf", dir + "/d/z", dir + "/e"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%q, %v", files, err)
	}
	if files, err := c.filesBelow("/none"); err != nil || len(files) > 0 {
		t.Errorf("%q, %v", files, err)
	}
	writeFile(t, root, "usr/bin/crio", "")
	writeFile(t, root, "var/lib/dpkg/status", "Package: cri-o\nStatus: install ok installed\nVersion: 1.31.0\n")
	all := Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"})
	if len(all) != 1 || all[0].CDI == On {
		t.Errorf("with a link to a directory: %+v", all)
	}
}

// A Docker without root is one of its own, and decides about itself.
func TestRootlessDocker(t *testing.T) {
	const unit, config = "home/u/.config/systemd/user/docker.service", "home/u/.config/docker/daemon.json"
	for name, test := range map[string]struct {
		version string
		files   map[string]string
		want    string // state of the one of root, and of the other, and its first finding that is no note
	}{
		"none":           {"28.2.2", nil, "on"},
		"before its fix": {"27.3.1", map[string]string{unit: "x"}, "off off cdi-off"},
		"fixed late":     {"25.0.8", map[string]string{unit: "x"}, "off unknown config-unknown"},
		"not fixed":      {"26.1.5", map[string]string{unit: "x"}, "off off cdi-off"},
		"on":             {"28.2.2", map[string]string{unit: "x"}, "on on "},
		"with a config":  {"28.2.2", map[string]string{unit: "x", config: "{}"}, "on unknown config-unknown"},
		"it runs": {"27.3.1", map[string]string{
			"proc/9/comm": "dockerd\n", "proc/9/status": "Name:\tdockerd\nUid:\t1000\t1000\n", "proc/9/cmdline": "dockerd\x00--feature=cdi=true\x00",
		}, "off off cdi-off"},
		"root's runs": {"27.3.1", map[string]string{
			"proc/9/comm": "dockerd\n", "proc/9/status": "Name:\tdockerd\nUid:\t0\t0\n", "proc/9/cmdline": "dockerd\x00--feature=cdi=true\x00",
		}, "on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			writeFile(t, root, "usr/bin/dockerd", "")
			writeFile(t, root, "var/lib/dpkg/status", "Package: docker-ce\nStatus: install ok installed\nVersion: "+test.version+"\n")
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			var got []string
			for _, r := range Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"}) {
				if got = append(got, string(r.CDI)); r.Name == "docker-rootless" {
					got = append(got, append(findings(&r), "")[0])
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}

// CRI-O's socket tells the version of one that no package brought, and the table what that one loads.
func TestAskedVersion(t *testing.T) {
	root := t.TempDir()
	writeFile(t, root, "usr/bin/crio", "")
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, fakeCRI{fakeContainerd: &fakeContainerd{version: "1.31.2"}})
	l := listen(t, root+"/var/run/crio/crio.sock")
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	all := Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"})
	if len(all) != 1 || all[0].CDI != On || all[0].Version != "1.31.2" || all[0].MaxCDIVersion != "0.8.0" {
		t.Errorf("found %+v", all)
	}
}
