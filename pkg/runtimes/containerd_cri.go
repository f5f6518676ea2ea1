package runtimes

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
			if name == plugin && !(old && v.merging == byTable) || old && name == parts[len(parts)-1] {
				return &setting{location: f.at("disabled_plugins", name), file: f, value: name}
			}
		}
	}
	return nil
}

// The keys of CRI's table of version 2 that the plugins of 2.0 divided among them; all others went to tableV3.
const (
	serverKeys    = "disable_tcp_service stream_server_address stream_server_port stream_idle_timeout enable_tls_streaming x509_key_pair_streaming"
	imageKeys     = "registry image_decryption max_concurrent_downloads image_pull_progress_timeout image_pull_with_sync_fs stats_collect_period"
	imageKeysDeep = "snapshotter disable_snapshot_annotations discard_unpacked_layers" // in its table containerd
)

func listed(list, key string) bool { return slices.Contains(strings.Fields(list), key) }

// effectiveTables are the tables of all plugins as the release reads them, merged and in the names of version 3.
func (v *verdict) effectiveTables() map[string]any {
	merged := map[string]any{}
	for _, f := range v.files {
		tables := maps.Clone(f.Plugins)
		if v.merging == byTable && v.table == tableV1 {
			delete(tables, tableV2)
		}
		if cri := tables[tableV1]; cri != nil && f.Version < 2 {
			tables[tableV2] = cri
		}
		if v.merging == byTable {
			maps.Copy(merged, tables)
			continue
		}
		if v.merging == migrated && f.Version < 4 {
			tables = v.migrate(tables)
		}
		merged = overlay(merged, tables)
	}
	if v.merging == byTable || v.merging == byKey && v.version < 3 {
		merged = v.migrate(merged)
	}
	return merged
}

// overlay lays one tree over another, and changes neither.
func overlay(under, over map[string]any) map[string]any {
	all := maps.Clone(under)
	if all == nil {
		all = map[string]any{}
	}
	for key, value := range over {
		below, isBelow := all[key].(map[string]any)
		if above, isTable := value.(map[string]any); isTable && isBelow {
			value = overlay(below, above)
		}
		all[key] = value
	}
	return all
}

// migrate divides CRI's table of version 2 as the plugins do (containerd, plugins/cri, configMigration). What stands in
// the tables of version 3 already stays for tableV3, and gives way for tableImages.
func (v *verdict) migrate(tables map[string]any) map[string]any {
	old, ok := tables[tableV2].(map[string]any)
	if !ok {
		return tables
	}
	table := func(name string) map[string]any { t, _ := tables[name].(map[string]any); return overlay(t, nil) }
	server, images, runtime := map[string]any{}, table(tableImages), table(tableV3)
	for key, value := range old {
		_, isSet := runtime[key]
		switch below, isTable := value.(map[string]any); {
		case listed(serverKeys, key):
			server[key] = value
		case listed(imageKeys, key):
			images[key] = value
		case key == "sandbox_image":
			images["pinned_images"] = overlay(nil, map[string]any{"sandbox": value})
		case isTable && (key == "containerd" || key == "cni"):
			above, _ := runtime[key].(map[string]any)
			both := overlay(below, nil)
			maps.Copy(both, above)
			runtime[key] = both
		case !isSet:
			runtime[key] = value
		}
	}
	containerd, _ := old["containerd"].(map[string]any)
	for key, value := range containerd { // 2.x forgets them where there is no table of runtimes
		if listed(imageKeysDeep, key) && (v.merging == byTable || containerd["runtimes"] != nil) {
			images[key] = value
		}
	}
	if cni, _ := runtime["cni"].(map[string]any); cni["bin_dir"] != nil && v.merging != byTable {
		cni["bin_dirs"] = []any{cni["bin_dir"]}
		delete(cni, "bin_dir")
	}
	tables = maps.Clone(tables)
	tables[tableV2], tables[tableV3], tables[tableImages] = server, runtime, images
	return tables
}

// locate is where a key of an effective table is written; the last place counts.
func (v *verdict) locate(plugin string, at []string) location {
	places, old := [][]string{append([]string{"plugins", plugin}, at...)}, at
	switch {
	case plugin == "":
		places[0] = at
	case plugin == tableImages && listed(imageKeysDeep, at[0]):
		old = append([]string{"containerd"}, at...)
	case plugin == tableImages && at[0] == "pinned_images":
		old = []string{"sandbox_image"}
	case slices.Equal(at, []string{"cni", "bin_dirs"}):
		old = []string{"cni", "bin_dir"}
	}
	if slices.Contains([]string{tableV2, tableV3, tableImages}, plugin) {
		places = append(places, append([]string{"plugins", tableV2}, old...), append([]string{"plugins", tableV1}, old...))
	}
	for _, f := range slices.Backward(v.files) {
		for _, place := range places {
			at := f.at(place...)
			if at.line > 0 && (plugin == "" || place[1] == plugin || v.reads(&setting{file: f, table: place[1]})) {
				return at
			}
		}
	}
	return v.at()
}

// judgeCRI finds why containerd does not start with the values of its config, or CRI does not, or cannot be judged.
func (v *verdict) judgeCRI() {
	if s := v.disabledNeed(); s != nil {
		v.fails(s.location, fmt.Sprintf("it needs the plugin %s, which is disabled here", s.value), v.enablePlugin(s))
	}
	tables := v.effectiveTables()
	images, _ := tables[tableImages].(map[string]any)
	if s := v.disabledAt("io.containerd.snapshotter.v1.overlayfs"); s != nil && images["snapshotter"] == nil && v.merging == byTable {
		v.fails(s.location, "its snapshotter is overlayfs, which is disabled here", v.enablePlugin(s))
	}
	for _, k := range keysKnownTo(v.release) {
		var trees []any
		if k.plugin == "" {
			for _, f := range v.files {
				trees = append(trees, f.tree)
			}
		} else if tree := tables[k.plugin]; tree != nil && v.disabledAt(k.plugin) == nil {
			trees = []any{tree}
		}
		for _, tree := range trees {
			each(tree, k.path, func(at []string, value any) { v.checkType(k, at, value) })
		}
	}
	if v.failure != nil { // the rules count on the types
		return
	}
	for _, rule := range v.rules(tables) {
		if v.release.within(rule.span) {
			each(tables[rule.plugin], rule.path, func(at []string, value any) { v.checkRule(rule, at, value) })
		}
	}
	v.checkDefaultRuntime(tables)
	v.checkProxies()
	for _, f := range v.files {
		for _, name := range f.Required {
			if !slices.Contains(v.ownPlugins(), name) && name != tableV1 {
				v.unjudged = append(v.unjudged, newFinding(finding.CRINotJudged, f.at("required_plugins", name),
					"containerd does not start without the plugin "+name+", and files cannot tell whether that one starts", ""))
			}
		}
	}
}

// checkType notes a value of the wrong type, with which containerd does not start.
func (v *verdict) checkType(k knownKey, at []string, value any) {
	name, isCRI := strings.Join(at, "."), slices.Contains([]string{tableV2, tableV3, tableImages}, k.plugin)
	kinds := map[string]string{
		"bool": "true or false", "int": "a whole number", "float": "a number", "strings": "a list of strings", "table": "a table",
	}
	must, bad := cmp.Or(kinds[k.kind], "a string"), !k.fits(value)
	if len(at) < strings.Count(k.path, ".")+1 {
		must, bad = "a table", true
	}
	switch {
	case bad && v.failure == nil:
		v.failure = refused(v.locate(k.plugin, at), fmt.Sprintf("%s must be %s, not %s", name, must, shown(value)), "")
	case bad || k.kind != "duration" || isDuration(value):
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
	wrong func(at []string, value any) (why string, sure bool)
}

// rules are those of containerd's source (internal/cri/config, plugins/cri; pkg/cri/config and pkg/cri/server in 1.x),
// each tried on 1.7.35, 2.2.9 and 2.4.2.
func (v *verdict) rules(tables map[string]any) []rule {
	get := func(plugin string, path ...string) any {
		value := tables[plugin]
		for _, name := range path {
			table, _ := value.(map[string]any)
			value = lookup(table, name)
		}
		return value
	}
	size := func(value any) int { t, _ := value.(map[string]any); return len(t) }
	text := func(value any) string { s, _ := value.(string); return s }
	beside := func(at []string, name string) []string { return append(slices.Clone(at[:len(at)-1]), name) }
	never := func(why string) func([]string, any) (string, bool) { // the zero value is good, any other is not
		return func(_ []string, value any) (string, bool) {
			if value == "" || value == false {
				return "", true
			}
			return why, true
		}
	}
	certificate := func(at []string, value any) (string, bool) {
		cert, key := text(get(tableV2, beside(at, "tls_cert_file")...)), text(get(tableV2, beside(at, "tls_key_file")...))
		switch on := get(tableV2, "enable_tls_streaming") == true; {
		case cert == "" && key == "":
			return "", true
		case !on:
			return "enable_tls_streaming is not set", true
		case cert == "" || key == "":
			return "tls_cert_file and tls_key_file belong together", true
		}
		return v.keyPair(cert, key)
	}
	oldShim := "it is for the runtime io.containerd.runtime.v1.linux only"
	return []rule{
		{"-", tableImages, "registry.config_path", "", func(_ []string, value any) (string, bool) {
			if value != "" && size(get(tableImages, "registry", "mirrors")) > 0 {
				return "it cannot stand beside registry.mirrors", true
			}
			return "", true
		}},
		{"-2.0", tableImages, "registry.configs.*.tls", nil, func([]string, any) (string, bool) {
			if text(get(tableImages, "registry", "config_path")) != "" {
				return "it cannot stand beside registry.config_path", true
			}
			return "", true
		}},
		{"-", tableImages, "registry.auths.*", nil, func(at []string, _ any) (string, bool) {
			if _, err := url.Parse(at[len(at)-1]); err != nil {
				return host.Reason(err).Error(), true
			}
			return "", true
		}},
		{"-", tableImages, "snapshotter", "overlayfs", func(_ []string, value any) (string, bool) { return v.snapshotter(text(value)) }},
		{"2.0-", "io.containerd.transfer.v1.local", "unpack_config", nil, func(_ []string, value any) (string, bool) {
			items, _ := value.([]any)
			for _, item := range items {
				entry, _ := item.(map[string]any)
				if why, sure := v.snapshotter(text(entry["snapshotter"])); why != "" {
					return why, sure
				}
			}
			return "", true
		}},
		{"2.0-", tableImages, "runtime_platforms.*.platform", "", func(_ []string, value any) (string, bool) {
			return map[bool]string{true: "it must be the name of a platform"}[value != ""], false
		}},
		{"-", tableV2, "x509_key_pair_streaming.tls_cert_file|tls_key_file", "", certificate},
		{"-", tableV2, "stream_server_address", "127.0.0.1", func(_ []string, value any) (string, bool) {
			if ip := net.ParseIP(text(value)); value == "" || value == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
				return "", true
			}
			return "it must be an address of this machine", false
		}},
		{"-", tableV2, "stream_server_port", "0", func(_ []string, value any) (string, bool) {
			if _, err := strconv.ParseUint(text(value), 10, 16); err == nil || value == "" {
				return "", true
			}
			return "it must be a port or the name of a service", false
		}},
		{"-2.0", tableV3, "systemd_cgroup", false, never(oldShim)},
		{"-2.0", tableV3, "containerd.no_pivot", false, never(oldShim)},
		{"-2.0", tableV3, "containerd.runtimes.*.runtime_engine|runtime_root", "", func(at []string, value any) (string, bool) {
			if value == "" || get(tableV3, beside(at, "runtime_type")...) == "io.containerd.runtime.v1.linux" {
				return "", true
			}
			return oldShim, true
		}},
		{"-2.0", tableV3, "containerd.untrusted_workload_runtime.runtime_type", "", func(_ []string, value any) (string, bool) {
			if value != "" && get(tableV3, "containerd", "runtimes", "untrusted") != nil {
				return "it cannot stand beside containerd.runtimes.untrusted", true
			}
			return "", true
		}},
		{"-", tableV3, "containerd.runtimes.*.privileged_without_host_devices_all_devices_allowed", false,
			func(at []string, value any) (string, bool) {
				if value == true && get(tableV3, beside(at, "privileged_without_host_devices")...) != true {
					return "privileged_without_host_devices is not set", true
				}
				return "", true
			}},
		{"2.0-", tableV3, "containerd.runtimes.*.io_type", "", func(_ []string, value any) (string, bool) {
			if slices.Contains([]any{"", "fifo", "streaming"}, value) {
				return "", true
			}
			return "it must be fifo or streaming", true
		}},
		{"2.1-", tableV3, "containerd.runtimes.*.cgroup_writable", false, func(_ []string, value any) (string, bool) {
			if value == false || v.Exists("/sys/fs/cgroup/cgroup.controllers") {
				return "", true
			}
			return "it needs cgroup v2", v.Exists("/sys/fs/cgroup")
		}},
		{"-", tableV3, "containerd.runtimes.*.base_runtime_spec", "", func(_ []string, value any) (string, bool) {
			return v.baseSpec(text(value))
		}},
		{"-", tableV3, "cni.conf_dir", "/etc/cni/net.d", func(_ []string, value any) (string, bool) { return v.directory(text(value)) }},
		{"-", tableV3, "containerd.runtimes.*.cni_conf_dir", "", func(_ []string, value any) (string, bool) {
			return v.directory(text(value))
		}},
		{"2.1-2.4", tableV3, "cni.bin_dir", "", func(_ []string, value any) (string, bool) {
			dirs, err := list(get(tableV3, "cni", "bin_dirs"))
			if value == "" || err != nil || len(dirs) == 0 || slices.Equal(dirs, []string{"/opt/cni/bin"}) {
				return "", true
			}
			return "it cannot stand beside cni.bin_dirs", true
		}},
	}
}

// checkRule notes a value with which CRI does not start, or may not start.
func (v *verdict) checkRule(r rule, at []string, value any) {
	why, sure := r.wrong(at, value)
	if why == "" {
		return
	}
	where, name := v.locate(r.plugin, at), strings.Join(at, ".")
	if !sure {
		v.unjudged = append(v.unjudged, newFinding(finding.CRINotJudged, where,
			fmt.Sprintf("whether CRI starts with %s = %v cannot be told from files: %s", name, value, why), ""))
		return
	}
	fix := ""
	if r.fix != nil {
		fix = v.set(where, at, r.fix)
	}
	v.fails(where, fmt.Sprintf("%s: %s", name, why), fix)
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
func (v *verdict) checkDefaultRuntime(tables map[string]any) {
	runtime, _ := tables[tableV3].(map[string]any)
	containerd, _ := lookup(runtime, "containerd").(map[string]any)
	runtimes, given := lookup(containerd, "runtimes").(map[string]any)
	old, _ := lookup(containerd, "default_runtime").(map[string]any)
	name, named := lookup(containerd, "default_runtime_name").(string)
	if !named {
		name = "runc"
	}
	has := runtimes[name] != nil || name == "runc" && (!given || v.merging != byTable) // 1.x has runc only where no runtimes are given
	if has || v.merging == byTable && lookup(old, "runtime_type") != nil {
		return
	}
	instead := "runc"
	if names := sortedNames(runtimes); v.merging == byTable && runtimes["runc"] == nil && len(names) > 0 {
		instead = names[0]
	}
	path := []string{"containerd", "default_runtime_name"}
	at, why := v.locate(tableV3, path), fmt.Sprintf("the default runtime is %q, and containerd.runtimes has none of this name", name)
	if named {
		v.fails(at, why, v.set(at, path, instead))
		return
	}
	v.fails(v.locate(tableV3, path[:1]), why,
		v.add(cmp.Or(v.lastWith(v.table), v.files[0]), fmt.Sprintf("default_runtime_name = %q", instead), v.table, "containerd")+"; then "+v.restart())
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
			v.unjudged = append(v.unjudged, newFinding(finding.CRINotJudged, at,
				"whether CRI starts with another store of content cannot be told from files", ""))
		case short == "snapshot", short == "snapshotter", short == "diff", short == "differ":
		case strings.HasPrefix(short, "sandbox") && !v.release.before("2.0"):
		case v.failure == nil:
			v.failure = refused(at, fmt.Sprintf("%q is no type of a proxy plugin", kind), "")
		}
	})
}

// snapshotter judges the snapshotter of a name. Those that need more than any Linux has cannot be judged.
func (v *verdict) snapshotter(name string) (why string, sure bool) {
	socket := ""
	v.proxies(func(_ *configFile, proxy, kind, address string) {
		if proxy == name && strings.Contains(kind, "snapshot") {
			socket = address
		}
	})
	switch {
	case socket != "" && !v.Exists(strings.TrimPrefix(socket, "unix://")):
		return fmt.Sprintf("its program does not run: there is no socket %s", v.Shown(socket)), false
	case socket != "", name == "" && v.merging == byTable:
		return "", true
	case v.disabledAt("io.containerd.snapshotter.v1."+name) != nil:
		return fmt.Sprintf("the snapshotter %q is disabled", name), true
	case name == "overlayfs", name == "native":
		return "", true
	case listed("blockfile btrfs devmapper erofs zfs", name):
		return fmt.Sprintf("the snapshotter %s works only where its file system or device is set up", name), false
	}
	return fmt.Sprintf("containerd has no snapshotter %q, and proxy_plugins has none of this name", name), v.distribution == "" // k3s has more
}

// baseSpec judges a file that containers are made from.
func (v *verdict) baseSpec(file string) (why string, sure bool) {
	if file == "" {
		return "", true
	}
	data, err := v.Read(file, configMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no file " + v.Shown(file), true
	case err != nil:
		return fmt.Sprintf("%s: %v", v.Shown(file), host.Reason(err)), false
	case !json.Valid(data):
		return v.Shown(file) + " is not JSON", true
	}
	return "", true
}

// keyPair judges the files of a certificate and its key.
func (v *verdict) keyPair(cert, key string) (why string, sure bool) {
	var data [2][]byte
	for i, file := range []string{cert, key} {
		var err error
		if data[i], err = v.Read(file, configMax); err != nil {
			return fmt.Sprintf("%s: %v", v.Shown(file), host.Reason(err)), errors.Is(err, fs.ErrNotExist)
		}
	}
	if _, err := tls.X509KeyPair(data[0], data[1]); err != nil {
		return err.Error(), true
	}
	return "", true
}

// directory judges a directory, which CRI makes if it is not there.
func (v *verdict) directory(path string) (why string, sure bool) {
	if path == "" {
		return "", true
	}
	if info, err := statIn(v.machine, path); err == nil && !info.IsDir() {
		return v.Shown(path) + " is not a directory", true
	}
	return "", true
}
