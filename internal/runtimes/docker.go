package runtimes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// dockerKeys are what dockerd accepts in daemon.json: its flags, or the plural of those
// that may be given more than once (moby, cmd/dockerd and daemon/command of 20.10 to
// 29.2). A release refuses those that are newer or gone. lpuctl does not report that.
const dockerKeys = `
add-runtime allow-direct-routing allow-nondistributable-artifacts api-cors-header authorization-plugin authorization-plugins bip bip6
bridge bridge-accept-fwmark builder cdi-spec-dir cdi-spec-dirs cgroup-parent cluster-advertise cluster-store cluster-store-opt
cluster-store-opts config-file containerd containerd-namespace containerd-plugins-namespace cpu-rt-period cpu-rt-runtime cri-containerd
data-root debug default-address-pool default-address-pools default-cgroupns-mode default-gateway default-gateway-v6 default-ipc-mode
default-network-opt default-network-opts default-runtime default-shm-size default-ulimit default-ulimits deprecated-key-path dns dns-opt
dns-opts dns-search exec-opt exec-opts exec-root experimental feature features firewall-backend fixed-cidr fixed-cidr-v6 graph group
host host-gateway-ip host-gateway-ips hosts http-proxy https-proxy icc init init-path insecure-registries insecure-registry ip
ip-forward ip-forward-no-drop ip-masq ip6tables iptables ipv6 label labels live-restore log-driver log-format log-level log-opt log-opts
max-concurrent-downloads max-concurrent-uploads max-download-attempts metrics-addr min-api-version mtu network-control-plane-mtu
network-diagnostic-port no-new-privileges no-proxy node-generic-resource node-generic-resources nri-opt nri-opts oom-score-adjust pidfile
raw-logs registry-mirror registry-mirrors restart rootless runtimes seccomp-profile selinux-enabled shutdown-timeout storage-driver
storage-opt storage-opts swarm-default-advertise-addr tls tlscacert tlscert tlskey tlsverify userland-proxy userland-proxy-path
userns-remap validate`

// dockerTables are keys whose values are tables. Of any other table dockerd takes the
// keys in it for its own.
const dockerTables = "builder cluster-store-opts default-network-opts default-ulimits features log-opts nri-opts runtimes"

func dockerProduct() product {
	modules := []string{"github.com/docker/docker", "github.com/moby/moby/v2"}
	return product{"dockerd", nil, modules, []string{"docker-ce", "docker.io"}}
}

// docker reads Docker's daemon.json and its flags (dockerd(8)). From 25.0 on features.cdi
// turns CDI on, from 28.2 on it is on without (moby pull requests 47087 and 49963).
func (c *checker) docker(_ context.Context, r *Runtime) bool {
	cmd := c.commandOf("docker.service", c.ofRoot, "dockerd")
	by := c.Shown(cmd.by)
	file := cmp.Or(flagValue(cmd.args, "config-file"), "/etc/docker/daemon.json")
	p := c.find(dockerProduct())
	if p.path == "" && !c.Exists(file) {
		return false
	}
	r.isOf(p, "docker")
	r.Unused = p.path == "" && !cmd.runs
	d, at, err := c.readDaemonJSON(file)
	if err == nil {
		at, err = d.addFlags(cmd.args, by)
	}
	refused := !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errEncoding)
	if r.startsWith(cmd, "Docker", at, err, refused) && r.supports(p, "25.0") {
		at = r.dockerState(d, p.release)
	}
	r.setFileSource(at.line > 0 || err != nil || cmd.fault != nil || at.file == by, at)
	if r.CDI != On {
		return true
	}
	c.requireSpecDir(r, r.SpecDirs, d.at("cdi-spec-dirs"),
		fmt.Sprintf("in %s set \"cdi-spec-dirs\": %s; then systemctl restart docker", d.file, c.addSpecDir(r.SpecDirs)))
	if p.release.Before("28.2") {
		inFile, _ := cmp.Or(d.keys["data-root"], d.keys["graph"]).(string)
		c.findNotRestarted(r, cmp.Or(flagValue(cmd.args, "data-root", "g", "graph"), inFile, "/var/lib/docker"))
	}
	return true
}

// findNotRestarted finds containers that Docker does not start again by itself: before
// 28.2 it knows CDI only after it has tried to (moby issue 49989).
func (c *checker) findNotRestarted(r *Runtime, dataRoot string) {
	const remedy = "install Docker 28.2 or later; until then start such containers by hand (docker start NAME) or by a unit"
	files, err := c.Glob(dataRoot + "/containers/*/hostconfig.json")
	at, names := c.whole(dataRoot), []string{}
	for _, file := range files {
		var container struct {
			RestartPolicy  struct{ Name string }
			DeviceRequests []struct{ Driver string }
		}
		data, readErr := c.Read(file, configMax)
		if readErr == nil {
			readErr = json.Unmarshal(data, &container)
		}
		if readErr != nil && err == nil {
			at, err = c.whole(file), readErr
		}
		usesCDI := slices.ContainsFunc(container.DeviceRequests, func(d struct{ Driver string }) bool { return d.Driver == "cdi" })
		if id := path.Base(path.Dir(file)); usesCDI && container.RestartPolicy.Name != "" && container.RestartPolicy.Name != "no" {
			names = append(names, id[:min(12, len(id))])
		}
	}
	const why = "containers with --restart and CDI devices are not started again when Docker is"
	switch {
	case len(names) > 0:
		r.AfterRestart = Off
		r.add(finding.RestartChanges, location{}, why+", here "+strings.Join(names, ", "), remedy)
	case err != nil:
		r.AfterRestart = Unknown
		r.addFinding(unreadable(at, "it does not tell whether there are some: "+why+": ", err))
	default:
		r.addFinding(note(newFinding(finding.RestartChanges, location{}, why+"; there are none", remedy)))
	}
}

// rootlessDocker looks for a Docker that a user without root runs, or has systemd run
// (dockerd-rootless-setuptool.sh). Each has a daemon.json of its own. Before 27.4 it does
// not see the usual directories, but for late releases of 25.0 (moby pull request 48541).
func (c *checker) rootlessDocker(_ context.Context, r *Runtime) bool {
	running := slices.DeleteFunc(c.processes("dockerd"), c.ofRoot)
	units, err := c.Glob("/home/*/.config/systemd/user/docker.service")
	if len(running) == 0 && len(units) == 0 {
		return false // who may not look into /home sees those that run
	}
	p := c.find(dockerProduct())
	configs, configErr := c.Glob("/home/*/.config/docker/daemon.json")
	at := c.whole(append(slices.Concat(running, units), "/home")[0])
	r.isOf(p, "docker")
	switch {
	case !r.supports(p, "25.0"):
	case p.release.Before("27.4") && !p.release.Within("25.0.8-26.0"):
		r.CDI = Off
		r.add(finding.CDIOff, at, "without root Docker "+p.release.Text+" does not see "+strings.Join(bothDirs(), " and "),
			"install Docker 28.2 or later; then systemctl --user restart docker")
	case len(configs) > 0 || err != nil || configErr != nil || p.release.Before("28.2"):
		r.add(finding.ConfigUnknown, at, "each user who runs Docker without root decides in ~/.config/docker/daemon.json",
			"ask as that user: docker info")
	default:
		r.CDI, r.SpecDirs = On, bothDirs()
	}
	r.setFileSource(r.CDI == Off, at)
	return true
}

// dockerState fills in what daemon.json means to a release that has CDI, and returns
// where that is decided.
func (r *Runtime) dockerState(d *daemonJSON, docker release) location {
	on, stated := d.Features["cdi"]
	none := len(d.Dirs) == 1 && d.Dirs[0] == ""
	if !none && (on || !stated && !docker.Before("28.2")) {
		r.CDI, r.SpecDirs = On, d.Dirs
		if len(d.Dirs) == 0 {
			r.SpecDirs = bothDirs()
		}
		if !stated {
			return location{file: d.file}
		}
		return d.at("features", "cdi")
	}
	at, why := d.at("features"), "before 28.2 it is off, unless features.cdi is true"
	fix := `add, or write if there is no such file: {"features": {"cdi": true}}`
	switch {
	case none:
		at, why, fix = d.at("cdi-spec-dirs"), "cdi-spec-dirs names no directory", "remove cdi-spec-dirs"
	case stated:
		at, why, fix = d.at("features", "cdi"), "features.cdi is false", `set "cdi": true`
	case at.line > 0:
		fix = `add to features: "cdi": true`
	}
	r.CDI = Off
	r.add(finding.CDIOff, at, "CDI is off: "+why, "in "+at.String()+" "+fix+"; then systemctl restart docker")
	return at
}

// daemonJSON is the part of Docker's config that concerns CDI.
type daemonJSON struct {
	Features map[string]bool `json:"features"`
	Dirs     []string        `json:"cdi-spec-dirs"`

	file  string // its path, for messages
	data  []byte
	keys  map[string]any
	flags map[string]string // keys that flags set, and the file that says so
}

// errEncoding says that a text is in an encoding that is not read here.
var errEncoding = errors.New("it is in UTF-16, which is not read here")

// readDaemonJSON reads Docker's config, which may be missing or empty. After an error, at
// is where it is.
func (c *checker) readDaemonJSON(path string) (d *daemonJSON, at location, err error) {
	d = &daemonJSON{file: c.Shown(path), flags: map[string]string{}}
	at = location{file: d.file}
	switch d.data, err = c.Read(path, configMax); {
	case err != nil && !c.Exists(path):
		return d, at, nil
	case err != nil:
		return d, at, err
	case bytes.HasPrefix(d.data, []byte("\xff\xfe")), bytes.HasPrefix(d.data, []byte("\xfe\xff")):
		return d, at, errEncoding
	}
	d.data = bytes.TrimPrefix(d.data, []byte("\ufeff")) // dockerd takes a byte order mark
	if len(bytes.TrimSpace(d.data)) > 0 {
		if err = json.Unmarshal(d.data, d); err == nil {
			err = json.Unmarshal(d.data, &d.keys)
		}
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = d.lineOf(int(e.Offset))
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = d.lineOf(int(e.Offset))
		err = fmt.Errorf("%s cannot be of type %s", cmp.Or(e.Field, "the document"), e.Value)
	}
	if err == nil {
		at, err = d.checkKeys()
	}
	return d, at, err
}

// checkKeys finds the first key that no release of dockerd accepts.
func (d *daemonJSON) checkKeys() (at location, err error) {
	for _, key := range sortedNames(d.keys) {
		names := []string{key}
		if table, isTable := d.keys[key].(map[string]any); isTable && !listed(dockerTables, key) {
			names = sortedNames(table)
		}
		for _, name := range names {
			if !listed(dockerKeys, name) {
				return d.at(name), fmt.Errorf("dockerd has no option %q", name)
			}
		}
	}
	return location{file: d.file}, nil
}

// addFlags adds what flags set. dockerd does not start with an option in both places.
func (d *daemonJSON) addFlags(args []string, by string) (at location, err error) {
	short := map[string]string{"D": "debug", "G": "group", "H": "host", "b": "bridge", "l": "log-level", "p": "pidfile", "s": "storage-driver"}
	for _, arg := range args {
		flag, isFlag := strings.CutPrefix(arg, "-")
		if !isFlag {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		name = cmp.Or(short[name], name)
		for _, key := range []string{name, name + "s", strings.TrimSuffix(name, "y") + "ies"} {
			if _, inFile := d.keys[key]; inFile {
				return d.at(key), fmt.Errorf("%s is set here and by a flag (%s)", key, by)
			}
		}
	}
	if dirs := flagValues(args, "cdi-spec-dir"); dirs != nil {
		d.Dirs, d.flags["cdi-spec-dirs"] = dirs, by
	}
	for _, value := range flagValues(args, "feature") {
		if feature, on, _ := strings.Cut(value, "="); feature == "cdi" {
			d.Features, d.flags["features"] = map[string]bool{"cdi": on != "false"}, by
		}
	}
	return location{file: d.file}, nil
}

func (d *daemonJSON) lineOf(offset int) location {
	return location{d.file, 1 + bytes.Count(d.data[:offset], []byte("\n"))}
}

// at is the location of the last of some nested keys; the file that sets it as a whole if
// it is not there.
func (d *daemonJSON) at(keys ...string) location {
	offset := 0
	for _, key := range keys {
		i := bytes.Index(d.data[offset:], []byte(strconv.Quote(key)))
		if i < 0 {
			return location{file: cmp.Or(d.flags[keys[0]], d.file)}
		}
		offset += i
	}
	return d.lineOf(offset)
}
