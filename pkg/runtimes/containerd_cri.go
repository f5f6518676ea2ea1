package runtimes

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Since 2.0 CRI is three plugins: tableV3 runs containers, tableImages pulls images, tableV2 serves. What follows speaks
// of the one plugin of 1.x as if it were these three.
const tableImages = "io.containerd.cri.v1.images"

// ownPlugins are the plugins that CRI is.
func (v *verdict) ownPlugins() []string {
	if v.merging == byTable {
		return []string{tableV2}
	}
	return []string{tableV2, tableV3, tableImages}
}

// neededPlugins are others that CRI does not start without: it was tried to disable each plugin of 1.7.35, 2.2.9 and 2.4.2.
// Each line is for a span of releases.
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

// disabledNeed is where the config disables a plugin that CRI needs; nil if it disables none.
func (v *verdict) disabledNeed() *setting {
	for line := range strings.Lines(neededPlugins) {
		words := strings.Fields(line)
		if len(words) == 0 || !v.release.within(words[0]) {
			continue
		}
		for _, name := range words[1:] {
			if s := v.disabledAt("io.containerd." + name); s != nil {
				return s
			}
		}
	}
	return nil
}

// disabledAt is where the config disables a plugin; nil if it does not. The value is the name as written: in version 1
// plugins are called by the last part of their name.
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
				return &setting{location: f.at("disabled_plugins", name), file: f, value: name}
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
	value := e.tables[plugin]
	for _, name := range path {
		table, _ := value.(map[string]any)
		value = lookup(table, name)
	}
	return value
}

// beside is the path of another key in the same table.
func beside(at []string, name string) []string { return append(slices.Clone(at[:len(at)-1]), name) }

// judgeCRI finds why containerd does not start with the values of its config, or CRI does not, or cannot be judged.
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
		if v.release.within(r.span) && !e.isOff(r.plugin) {
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

// isOff tells whether a plugin is disabled, so that nobody reads its table.
func (e effective) isOff(plugin string) bool {
	if e.merging == byTable && slices.Contains([]string{tableV3, tableImages}, plugin) {
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

// checkType notes a value of the wrong type, with which containerd does not start.
func (v *verdict) checkType(k knownKey, at []string, value any) {
	name, isCRI := strings.Join(at, "."), slices.Contains([]string{tableV2, tableV3, tableImages}, k.plugin)
	must := k.wrong(at, value)
	switch {
	case must != "" && v.failure == nil:
		v.failure = refused(v.locate(k.plugin, at), fmt.Sprintf("%s must be %s, not %s", name, must, shown(value)), "")
	case must != "" || k.kind != "duration" || isDuration(value):
	case isCRI:
		v.fails(v.locate(k.plugin, at), notADuration(name, value), v.set(v.locate(k.plugin, at), at, ""))
	case v.failure == nil:
		v.failure = refused(v.locate(k.plugin, at), notADuration(name, value), "")
	}
}

// shown writes a value as TOML does, if it is no list or table.
func shown(value any) string {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return fmt.Sprint(value)
}

func notADuration(name string, value any) string {
	return fmt.Sprintf("%s must be a duration such as 4h0m0s, not %s", name, shown(value))
}

// rule is what CRI asks of the values of one key in one span of releases.
type rule struct {
	span, plugin, path string
	fix                any // a value with which CRI starts; nil: somebody has to think
	// wrong says why CRI does not start with a value, or, if it is not sure, why files do not tell; "" if it starts.
	wrong func(e effective, at []string, value any) (why string, sure bool)
}

// rules are those of containerd's source (internal/cri/config, plugins/cri; pkg/cri/config and pkg/cri/server in 1.x),
// each tried on 1.7.35, 2.2.9 and 2.4.2.
func rules() []rule {
	const handlers, transfer = "containerd.runtimes.*.", "io.containerd.transfer.v1.local"
	return []rule{
		{"-", tableImages, "registry.config_path", "", effective.mirrors},
		{"-2.0", tableImages, "registry.configs.*.tls", nil, effective.registryTLS},
		{"-", tableImages, "registry.auths.*", nil, effective.registryAddress},
		{"-", tableImages, "snapshotter", "overlayfs", effective.snapshotter},
		{"2.0-", tableImages, "runtime_platforms.*.platform", "", effective.platform},
		{"2.0-", transfer, "unpack_config", nil, effective.unpack},
		{"-", tableV2, "x509_key_pair_streaming.tls_cert_file|tls_key_file", "", effective.certificate},
		{"-", tableV2, "stream_server_address", "127.0.0.1", effective.streamAddress},
		{"-", tableV2, "stream_server_port", "0", effective.streamPort},
		{"-2.0", tableV3, "systemd_cgroup", false, effective.oldShim},
		{"-2.0", tableV3, "containerd.no_pivot", false, effective.oldShim},
		{"-2.0", tableV3, handlers + "runtime_engine|runtime_root", "", effective.oldShim},
		{"-2.0", tableV3, "containerd.untrusted_workload_runtime.runtime_type", "", effective.untrusted},
		{"-", tableV3, handlers + "privileged_without_host_devices_all_devices_allowed", false, effective.allDevices},
		{"2.0-", tableV3, handlers + "io_type", "", effective.ioType},
		{"2.1-", tableV3, handlers + "cgroup_writable", false, effective.cgroupWritable},
		{"-", tableV3, handlers + "base_runtime_spec", "", effective.baseSpec},
		{"-", tableV3, handlers + "cni_conf_dir", "", effective.directory},
		{"-", tableV3, "cni.conf_dir", "/etc/cni/net.d", effective.directory},
		{"2.1-2.4", tableV3, "cni.bin_dir", "", effective.binDir},
	}
}

func (e effective) mirrors(_ []string, value any) (why string, sure bool) {
	if mirrors, _ := e.get(tableImages, "registry", "mirrors").(map[string]any); value != "" && len(mirrors) > 0 {
		return "it cannot stand beside registry.mirrors", true
	}
	return "", true
}

func (e effective) registryTLS([]string, any) (why string, sure bool) {
	if dirs, _ := e.get(tableImages, "registry", "config_path").(string); dirs != "" {
		return "it cannot stand beside registry.config_path", true
	}
	return "", true
}

func (e effective) registryAddress(at []string, _ any) (why string, sure bool) {
	if _, err := url.Parse(at[len(at)-1]); err != nil {
		return host.Reason(err).Error(), true
	}
	return "", true
}

// snapshotter judges the snapshotter of a name. Those that need more than any Linux has cannot be judged, nor can those
// that a distribution builds in.
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

func (e effective) platform(_ []string, value any) (why string, sure bool) {
	if value == "" {
		return "", true
	}
	return "it must be the name of a platform", false
}

func (e effective) certificate(at []string, value any) (why string, sure bool) {
	cert, _ := e.get(tableV2, beside(at, "tls_cert_file")...).(string)
	key, _ := e.get(tableV2, beside(at, "tls_key_file")...).(string)
	switch {
	case value == "": // where the other one is set, that one is to be corrected
		return "", true
	case e.get(tableV2, "enable_tls_streaming") != true:
		return "enable_tls_streaming is not set", true
	case cert == "" || key == "":
		return "tls_cert_file and tls_key_file belong together", true
	}
	var data [2][]byte
	for i, file := range []string{cert, key} {
		var err error
		if data[i], err = e.Read(file, configMax); err != nil {
			return fmt.Sprintf("%s: %v", e.Shown(file), host.Reason(err)), errors.Is(err, fs.ErrNotExist)
		}
	}
	if _, err := tls.X509KeyPair(data[0], data[1]); err != nil {
		return err.Error(), true
	}
	return "", true
}

func (e effective) streamAddress(_ []string, value any) (why string, sure bool) {
	ip := net.ParseIP(value.(string))
	if value == "" || value == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return "", true
	}
	return "it must be an address of this machine", false
}

func (e effective) streamPort(_ []string, value any) (why string, sure bool) {
	if _, err := strconv.ParseUint(value.(string), 10, 16); err == nil || value == "" {
		return "", true
	}
	return "it must be a port or the name of a service", false
}

// oldShim judges keys that are for the first runtime that containerd had, and set only if they are not zero.
func (e effective) oldShim(at []string, value any) (why string, sure bool) {
	const old = "io.containerd.runtime.v1.linux"
	if value == "" || value == false || e.get(tableV3, beside(at, "runtime_type")...) == old {
		return "", true
	}
	return "it is for the runtime " + old + " only", true
}

func (e effective) untrusted(_ []string, value any) (why string, sure bool) {
	if value != "" && e.get(tableV3, "containerd", "runtimes", "untrusted") != nil {
		return "it cannot stand beside containerd.runtimes.untrusted", true
	}
	return "", true
}

func (e effective) allDevices(at []string, value any) (why string, sure bool) {
	if value == true && e.get(tableV3, beside(at, "privileged_without_host_devices")...) != true {
		return "privileged_without_host_devices is not set", true
	}
	return "", true
}

func (e effective) ioType(_ []string, value any) (why string, sure bool) {
	if slices.Contains([]any{"", "fifo", "streaming"}, value) {
		return "", true
	}
	return "it must be fifo or streaming", true
}

func (e effective) cgroupWritable(_ []string, value any) (why string, sure bool) {
	if value == false || e.Exists("/sys/fs/cgroup/cgroup.controllers") {
		return "", true
	}
	return "it needs cgroup v2", e.Exists("/sys/fs/cgroup")
}

// baseSpec judges a file that containers are made from.
func (e effective) baseSpec(_ []string, value any) (why string, sure bool) {
	if value == "" {
		return "", true
	}
	file := value.(string)
	data, err := e.Read(file, configMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
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
	if value == "" {
		return "", true
	}
	path := value.(string)
	if info, err := statIn(e.machine, path); err == nil && !info.IsDir() {
		return e.Shown(path) + " is not a directory", true
	}
	return "", true
}

func (e effective) binDir(_ []string, value any) (why string, sure bool) {
	dirs, err := list(e.get(tableV3, "cni", "bin_dirs"))
	if value == "" || err != nil || len(dirs) == 0 || slices.Equal(dirs, []string{"/opt/cni/bin"}) {
		return "", true
	}
	return "it cannot stand beside cni.bin_dirs", true
}

// checkRule notes a value with which CRI does not start, or may not start.
func (e effective) checkRule(r rule, at []string, value any) {
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
	return fmt.Sprintf("%sin %s on line %d set %s = %s; then %s",
		v.templateOf(at), at.file, at.line, path[len(path)-1], shown(value), v.restart())
}

// checkDefaultRuntime: the runtime that is used by default must be among those that there are.
func (e effective) checkDefaultRuntime() {
	table, _ := e.get(tableV3, "containerd").(map[string]any)
	runtimes, given := lookup(table, "runtimes").(map[string]any)
	name, named := lookup(table, "default_runtime_name").(string)
	if !named {
		name = "runc"
	}
	has := runtimes[name] != nil || name == "runc" && (!given || e.merging != byTable) // 1.x has runc only where no runtimes are given
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

// proxies calls f with the plugins that other programs provide, their types and their sockets.
func (v *verdict) proxies(f func(file *configFile, name, kind, address string)) {
	for _, file := range v.files {
		each(file.tree, "proxy_plugins.*", func(at []string, value any) {
			proxy, _ := value.(map[string]any)
			kind, _ := lookup(proxy, "type").(string)
			address, _ := lookup(proxy, "address").(string)
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
		case strings.HasPrefix(short, "sandbox") && !v.release.before("2.0"):
		case v.failure == nil:
			v.failure = refused(at, fmt.Sprintf("%q is no type of a proxy plugin", kind), "")
		}
	})
}
