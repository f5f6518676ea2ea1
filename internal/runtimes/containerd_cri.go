package runtimes

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Since 2.0 CRI is three plugins: tableV3 runs containers, tableImages pulls images,
// tableV2 serves. What follows speaks of the one plugin of 1.x as if it were these three.
const tableImages = "io.containerd.cri.v1.images"

func criPlugins() []string { return []string{tableV2, tableV3, tableImages} }

// ownPlugins are the plugins that CRI is.
func (v *verdict) ownPlugins() []string {
	if v.merging == byTable {
		return []string{tableV2}
	}
	return criPlugins()
}

// neededPlugins are others that CRI does not start without: it was tried to disable each
// plugin of 1.7.35, 2.2.9 and 2.4.2. Each line is for a span of releases.
const neededPlugins = `
- content.v1.content differ.v1.walking event.v1.exchange gc.v1.scheduler lease.v1.manager metadata.v1.bolt runtime.v2.task
- sandbox.store.v1.local service.v1.containers-service service.v1.content-service service.v1.diff-service
- service.v1.images-service service.v1.introspection-service service.v1.namespaces-service service.v1.snapshots-service
- service.v1.tasks-service warning.v1.deprecations
-2.0 runtime.v1.linux runtime.v2.shim sandbox.controller.v1.local
2.0- podsandbox.controller.v1.podsandbox sandbox.controller.v1.shim snapshotter.v1.overlayfs transfer.v1.local
2.0-2.3 image-verifier.v1.bindir
2.2- mount-manager.v1.bolt shim.v1.manager
2.3- server.v1.grpc
`

// disabledNeed is where the config disables a plugin that CRI needs; nil if it disables
// none.
func (v *verdict) disabledNeed() *setting {
	for line := range strings.Lines(neededPlugins) {
		span, names, _ := strings.Cut(line, " ")
		for name := range strings.FieldsSeq(names) {
			if s := v.disabledAt("io.containerd." + name); s != nil && v.release.Within(span) {
				return s
			}
		}
	}
	return nil
}

// disabledAt is where the config disables a plugin; nil if it does not. The value is the
// name as written: in version 1 plugins are called by the last part of their name.
func (v *verdict) disabledAt(plugin string) *setting {
	parts := strings.SplitN(plugin, ".", 5)
	for _, f := range v.files {
		old := f.Version < 2
		if v.merging == byTable {
			old = v.version == 1
		}
		for _, name := range f.Disabled {
			full := name == plugin && (!old || v.merging != byTable)
			if full || old && name == parts[len(parts)-1] {
				return &setting{location: f.at("disabled_plugins", name), value: name}
			}
		}
	}
	return nil
}

// effective is a verdict, with the tables of all plugins as the release reads them.
type effective struct {
	*verdict
	tables map[string]any
}

// get is a value of a plugin's table; nil if it is not there.
func (e effective) get(plugin string, path ...string) any {
	return valueAt(e.tables[plugin], path...)
}

// beside is the path of another key in the same table.
func beside(at []string, name string) []string { return append(slices.Clone(at[:len(at)-1]), name) }

// judgeCRI finds why containerd does not start with the values of its config, or CRI does
// not, or cannot be judged.
func (v *verdict) judgeCRI() {
	e := effective{v, v.effectiveTables()}
	e.checkPlugins()
	for _, k := range keysKnownTo(knownKeys, v.release) {
		e.checkKey(k)
	}
	if v.failure != nil { // the rules count on the types
		return
	}
	for _, r := range rules() {
		if v.release.Within(r.span) && !e.isOff(r.plugin) {
			each(e.tables[r.plugin], r.path, func(at []string, value any) { e.checkRule(r, at, value) })
		}
	}
	e.checkDefaultRuntime()
	v.checkProxies()
}

// checkPlugins: CRI needs some plugins, and the config may require others.
func (e effective) checkPlugins() {
	const overlayfs = "io.containerd.snapshotter.v1.overlayfs"
	s := e.disabledNeed()
	if s == nil && e.merging == byTable && e.get(tableImages, "snapshotter") == nil {
		s = e.disabledAt(overlayfs)
	}
	if s != nil {
		e.fails(s.location, fmt.Sprintf("it needs the plugin %s, which is disabled here", s.value), e.enablePlugin(s))
	}
	for _, f := range e.files {
		for _, name := range f.Required {
			if !slices.Contains(e.ownPlugins(), name) && name != tableV1 {
				e.cannotTell(f.at("required_plugins", name),
					"containerd does not start without the plugin "+name+", and files cannot tell whether that one starts")
			}
		}
	}
}

// isOff reports whether a plugin is disabled, so that no plugin reads its table.
func (e effective) isOff(plugin string) bool {
	if e.merging == byTable && slices.Contains(criPlugins(), plugin) {
		plugin = tableV2
	}
	return e.disabledAt(plugin) != nil
}

// checkKey notes values of the wrong type.
func (e effective) checkKey(k knownKey) {
	if k.plugin == "" {
		for _, f := range e.files {
			each(f.tree, k.path, func(at []string, value any) { e.checkType(k, at, value) })
		}
	} else if !e.isOff(k.plugin) {
		each(e.tables[k.plugin], k.path, func(at []string, value any) { e.checkType(k, at, value) })
	}
}

// checkType notes a value of the wrong type, with which containerd does not start. Where
// CRI has a text that is no duration, CRI alone does not start.
func (v *verdict) checkType(k knownKey, at []string, value any) {
	must := k.wrong(at, value)
	malformed := must == "" && k.kind == "duration" && !isDuration(value)
	if malformed {
		must = "a duration such as 4h0m0s"
	}
	onlyCRI := malformed && slices.Contains(criPlugins(), k.plugin)
	if must == "" || v.failure != nil && !onlyCRI { // the first one is enough
		return
	}
	where, why := v.locate(k.plugin, at), fmt.Sprintf("%s must be %s, not %s", strings.Join(at, "."), must, shown(value))
	if onlyCRI {
		v.fails(where, why, v.set(where, at, ""))
	} else {
		v.failure = refused(where, why, "")
	}
}

// shown writes a value as TOML does, if it is no list or table.
func shown(value any) string {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return fmt.Sprint(value)
}

// rule is what CRI asks of the values of one key in one span of releases.
type rule struct {
	span, plugin, path string
	fix                any // a value with which CRI starts; nil: an administrator has to think
	wrong              judgement
}

// judgement says why CRI does not start with a value, or, if it is not sure, why files do
// not tell; "" if it starts.
type judgement func(e effective, at []string, value any) (why string, sure bool)

// unless is the judgement that a value must fit, or else CRI does not start, for a reason
// that is the same for all values. CRI may know values that files do not tell of: then it
// is not sure.
func unless(fits func(e effective, at []string, value any) bool, sure bool, reason string) judgement {
	return func(e effective, at []string, value any) (string, bool) {
		if fits(e, at, value) {
			return "", true
		}
		return reason, sure
	}
}

// oldRuntime is the first runtime that containerd had.
const oldRuntime = "io.containerd.runtime.v1.linux"

// rules are those of containerd's source (internal/cri/config, plugins/cri;
// pkg/cri/config and pkg/cri/server in 1.x), each tried on 1.7.35, 2.2.9 and 2.4.2.
func rules() []rule {
	const handlers, transfer = "containerd.runtimes.*.", "io.containerd.transfer.v1.local"
	forOldRuntime := unless(effective.oldRuntime, true, "it is for the runtime "+oldRuntime+" only")
	return []rule{
		{"-", tableImages, "registry.config_path", "", unless(effective.noMirrors, true, "it cannot stand beside registry.mirrors")},
		{"-2.0", tableImages, "registry.configs.*.tls", nil,
			unless(effective.noConfigPath, true, "it cannot stand beside registry.config_path")},
		{"-", tableImages, "registry.auths.*", nil, effective.registryAddress},
		{"-", tableImages, "snapshotter", "overlayfs", effective.snapshotter},
		{"2.0-", tableImages, "runtime_platforms.*.platform", "", unless(effective.never, false, "it must be the name of a platform")},
		{"2.0-", transfer, "unpack_config", nil, effective.unpack},
		{"-", tableV2, "x509_key_pair_streaming.tls_cert_file|tls_key_file", "", effective.certificate},
		{"-", tableV2, "stream_server_address", "127.0.0.1", unless(effective.ownAddress, false, "it must be an address of this machine")},
		{"-", tableV2, "stream_server_port", "0", unless(effective.port, false, "it must be a port or the name of a service")},
		{"-2.0", tableV3, "systemd_cgroup", false, forOldRuntime},
		{"-2.0", tableV3, "containerd.no_pivot", false, forOldRuntime},
		{"-2.0", tableV3, handlers + "runtime_engine|runtime_root", "", forOldRuntime},
		{"-2.0", tableV3, "containerd.untrusted_workload_runtime.runtime_type", "",
			unless(effective.noUntrusted, true, "it cannot stand beside containerd.runtimes.untrusted")},
		{"-", tableV3, handlers + "privileged_without_host_devices_all_devices_allowed", false,
			unless(effective.privileged, true, "privileged_without_host_devices is not set")},
		{"2.0-", tableV3, handlers + "io_type", "", unless(effective.ioType, true, "it must be fifo or streaming")},
		{"2.1-", tableV3, handlers + "cgroup_writable", false, effective.cgroupWritable},
		{"-", tableV3, handlers + "base_runtime_spec", "", effective.baseSpec},
		{"-", tableV3, handlers + "cni_conf_dir", "", effective.directory},
		{"-", tableV3, "cni.conf_dir", "/etc/cni/net.d", effective.directory},
		{"2.1-2.4", tableV3, "cni.bin_dir", "", unless(effective.noBinDirs, true, "it cannot stand beside cni.bin_dirs")},
	}
}

func (effective) never([]string, any) bool { return false }

func (e effective) noMirrors([]string, any) bool {
	mirrors, _ := e.get(tableImages, "registry", "mirrors").(map[string]any)
	return len(mirrors) == 0
}

func (e effective) noConfigPath([]string, any) bool {
	dirs, _ := e.get(tableImages, "registry", "config_path").(string)
	return dirs == ""
}

func (e effective) registryAddress(at []string, _ any) (why string, sure bool) {
	if _, err := url.Parse(at[len(at)-1]); err != nil {
		return host.Reason(err).Error(), true
	}
	return "", true
}

// snapshotter judges the snapshotter of a name. Those that need more than any Linux has
// cannot be judged, nor can those that a distribution builds in.
func (e effective) snapshotter(_ []string, value any) (why string, sure bool) {
	name, socket := value.(string), ""
	e.proxies(func(_ *configFile, proxy, kind, address string) {
		if proxy == name && strings.Contains(kind, "snapshot") {
			socket = address
		}
	})
	switch {
	case socket != "" && !e.Exists(strings.TrimPrefix(socket, "unix://")):
		return fmt.Sprintf("its program does not run: there is no socket %s", e.Shown(socket)), false
	case socket != "", name == "" && e.merging == byTable:
		return "", true
	case e.disabledAt("io.containerd.snapshotter.v1."+name) != nil:
		return fmt.Sprintf("the snapshotter %q is disabled", name), true
	case name == "overlayfs", name == "native":
		return "", true
	case listed("blockfile btrfs devmapper erofs zfs", name):
		return fmt.Sprintf("the snapshotter %s works only where its file system or device is set up", name), false
	}
	return fmt.Sprintf("containerd has no snapshotter %q, and proxy_plugins has none of this name", name), e.distribution == ""
}

func (e effective) unpack(at []string, value any) (why string, sure bool) {
	items, _ := value.([]any)
	for _, item := range items {
		entry, _ := item.(map[string]any)
		if name, isText := entry["snapshotter"].(string); isText {
			if why, sure = e.snapshotter(at, name); why != "" {
				return why, sure
			}
		}
	}
	return "", true
}

// certificate judges one of the two files. Where only the other one is set, that one is to
// be corrected.
func (e effective) certificate(at []string, _ any) (why string, sure bool) {
	cert, _ := e.get(tableV2, beside(at, "tls_cert_file")...).(string)
	key, _ := e.get(tableV2, beside(at, "tls_key_file")...).(string)
	switch {
	case e.get(tableV2, "enable_tls_streaming") != true:
		return "enable_tls_streaming is not set", true
	case cert == "" || key == "":
		return "tls_cert_file and tls_key_file belong together", true
	}
	var data [2][]byte
	for i, file := range []string{cert, key} {
		var err error
		if data[i], err = e.Read(file, configMax); err != nil {
			return fmt.Sprintf("%s: %v", e.Shown(file), host.Reason(err)), host.IsAbsent(err)
		}
	}
	if _, err := tls.X509KeyPair(data[0], data[1]); err != nil {
		return err.Error(), true
	}
	return "", true
}

func (effective) ownAddress(_ []string, value any) bool {
	ip := net.ParseIP(value.(string))
	return value == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

func (effective) port(_ []string, value any) bool {
	_, err := strconv.ParseUint(value.(string), 10, 16)
	return err == nil
}

func (e effective) oldRuntime(at []string, _ any) bool {
	return e.get(tableV3, beside(at, "runtime_type")...) == oldRuntime
}

func (e effective) noUntrusted([]string, any) bool {
	return e.get(tableV3, "containerd", "runtimes", "untrusted") == nil
}

func (e effective) privileged(at []string, _ any) bool {
	return e.get(tableV3, beside(at, "privileged_without_host_devices")...) == true
}

func (effective) ioType(_ []string, value any) bool { return value == "fifo" || value == "streaming" }

func (e effective) cgroupWritable([]string, any) (why string, sure bool) {
	if e.Exists("/sys/fs/cgroup/cgroup.controllers") {
		return "", true
	}
	return "it needs cgroup v2", e.Exists("/sys/fs/cgroup")
}

// baseSpec judges a file that containers are made from.
func (e effective) baseSpec(_ []string, value any) (why string, sure bool) {
	file := value.(string)
	data, err := e.Read(file, configMax)
	switch {
	case host.IsAbsent(err):
		return "there is no file " + e.Shown(file), true
	case err != nil:
		return fmt.Sprintf("%s: %v", e.Shown(file), host.Reason(err)), false
	case !json.Valid(data):
		return e.Shown(file) + " is not JSON", true
	}
	return "", true
}

// directory judges a directory, which CRI makes if it is not there.
func (e effective) directory(_ []string, value any) (why string, sure bool) {
	path := value.(string)
	if info, err := e.stat(path); err == nil && !info.IsDir() {
		return e.Shown(path) + " is not a directory", true
	}
	return "", true
}

// noBinDirs reports whether there are none but the default.
func (e effective) noBinDirs([]string, any) bool {
	dirs, err := list(e.get(tableV3, "cni", "bin_dirs"))
	return err != nil || len(dirs) == 0 || slices.Equal(dirs, []string{"/opt/cni/bin"})
}

// checkRule notes a value with which CRI does not start, or may not start. What is empty
// or false asks for nothing, but for the name of the snapshotter.
func (e effective) checkRule(r rule, at []string, value any) {
	if (value == "" || value == false) && r.path != "snapshotter" {
		return
	}
	why, sure := r.wrong(e, at, value)
	if why == "" {
		return
	}
	where, name := e.locate(r.plugin, at), strings.Join(at, ".")
	if !sure {
		e.cannotTell(where, fmt.Sprintf("whether CRI starts with %s = %v cannot be told from files: %s", name, value, why))
		return
	}
	fix := ""
	if r.fix != nil {
		fix = e.set(where, at, r.fix)
	}
	e.fails(where, fmt.Sprintf("%s: %s", name, why), fix)
}

// cannotTell notes why it is not known whether CRI starts.
func (v *verdict) cannotTell(at location, why string) {
	v.unjudged = append(v.unjudged, newFinding(finding.CRINotJudged, at, why, ""))
}

// fails notes why CRI does not start. Without a remedy it has the table's.
func (v *verdict) fails(at location, why, remedy string) {
	v.broken = append(v.broken, newFinding(finding.CRIWouldFail, at, "CRI does not start with this: "+why, remedy))
}

// set says how to give a key that a file has another value.
func (v *verdict) set(at location, path []string, value any) string {
	return fmt.Sprintf("%s set %s = %s; then %s", v.line(at), path[len(path)-1], shown(value), v.restart())
}

// checkDefaultRuntime: the runtime that is used by default must be among those that there
// are.
func (e effective) checkDefaultRuntime() {
	runtimes, given := e.get(tableV3, "containerd", "runtimes").(map[string]any)
	name, named := e.get(tableV3, "containerd", "default_runtime_name").(string)
	if !named {
		name = "runc"
	}
	// 1.x has runc only where no runtimes are given.
	has := runtimes[name] != nil || name == "runc" && (!given || e.merging != byTable)
	if old, _ := e.get(tableV3, "containerd", "default_runtime", "runtime_type").(string); has || e.merging == byTable && old != "" {
		return
	}
	instead := "runc"
	if names := sortedNames(runtimes); e.merging == byTable && runtimes["runc"] == nil && len(names) > 0 {
		instead = names[0]
	}
	path := []string{"containerd", "default_runtime_name"}
	at := e.locate(tableV3, path)
	fix := e.set(at, path, instead)
	if !named {
		at = e.locate(tableV3, path[:1])
		line := fmt.Sprintf("%s = %q", path[1], instead)
		fix = e.add(cmp.Or(e.lastWith(e.table), e.files[0]), line, e.table, path[0]) + "; then " + e.restart()
	}
	e.fails(at, fmt.Sprintf("the default runtime is %q, and containerd.runtimes has none of this name", name), fix)
}

// proxies calls f with the plugins that other programs provide, their types and their
// sockets.
func (v *verdict) proxies(f func(file *configFile, name, kind, address string)) {
	for _, file := range v.files {
		each(file.tree, "proxy_plugins.*", func(at []string, value any) {
			kind, _ := valueAt(value, "type").(string)
			address, _ := valueAt(value, "address").(string)
			f(file, at[1], kind, address)
		})
	}
}

// checkProxies: containerd does not start with a proxy of a type that it does not know.
func (v *verdict) checkProxies() {
	v.proxies(func(f *configFile, name, kind, _ string) {
		at := f.at("proxy_plugins", name, "type")
		switch short := strings.TrimSuffix(strings.TrimPrefix(kind, "io.containerd."), ".v1"); {
		case short == "content":
			v.cannotTell(at, "whether CRI starts with another store of content cannot be told from files")
		case short == "snapshot", short == "snapshotter", short == "diff", short == "differ":
		case strings.HasPrefix(short, "sandbox") && !v.release.Before("2.0"):
		case v.failure == nil:
			v.failure = refused(at, fmt.Sprintf("%q is no type of a proxy plugin", kind), "")
		}
	})
}
