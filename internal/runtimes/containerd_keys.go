package runtimes

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// knownKeys are the keys of containerd's config and their types, as read in its source
// from 1.7.0 to 2.4.2 and compared with what `containerd config default` prints
// (test/e2e/containerd). A line in brackets begins a plugin's table, in the names of
// version 3; [] is the file itself. Below it stand a type and keys that have it. * stands
// for any name, a|b for either of them. A line that ends with -2.0 is of releases before
// 2.0, with 2.1- of 2.1 and later ones.
const knownKeys = `
[io.containerd.cri.v1.runtime]
bool   device_ownership_from_security_context disable_apparmor disable_hugetlb_controller disable_proc_mount enable_selinux
bool   enable_unprivileged_icmp enable_unprivileged_ports ignore_image_defined_volumes netns_mounts_under_state_dir
bool   restrict_oom_score_adj tolerate_missing_hugetlb_controller
bool   disable_cgroup systemd_cgroup -2.0
bool   enable_cdi -2.4
bool   enable_criu 2.2-
bool   enable_experimental_restore_via_create 2.2-2.4
int    max_container_log_line_size selinux_category_range
string unset_seccomp_profile
duration drain_exec_sync_io_timeout
duration stats_collect_period stats_retention_period 2.3-
strings cdi_spec_dirs ignore_deprecation_warnings
bool   cni.setup_serially
bool   cni.use_internal_loopback 2.0-
int    cni.max_conf_num
string cni.conf_dir cni.conf_template cni.ip_pref
string cni.bin_dir -2.4
strings cni.bin_dirs 2.1-
bool   containerd.ignore_blockio_not_enabled_errors containerd.ignore_rdt_not_enabled_errors
bool   containerd.no_pivot -2.0
string containerd.default_runtime_name
bool   containerd.runtimes.*.privileged_without_host_devices
bool   containerd.runtimes.*.privileged_without_host_devices_all_devices_allowed
bool   containerd.runtimes.*.cgroup_writable 2.1-
bool   containerd.runtimes.*.disable_pause_image_pull 2.4-
int    containerd.runtimes.*.cni_max_conf_num
string containerd.runtimes.*.base_runtime_spec|cni_conf_dir|runtime_path|runtime_type|snapshotter
string containerd.runtimes.*.runtime_engine|runtime_root|sandbox_mode -2.0
string containerd.runtimes.*.io_type|sandboxer 2.0-
strings containerd.runtimes.*.container_annotations|pod_annotations
table  containerd.runtimes.*.options
bool   containerd.default_runtime|untrusted_workload_runtime.privileged_without_host_devices -2.0
bool   containerd.default_runtime|untrusted_workload_runtime.privileged_without_host_devices_all_devices_allowed -2.0
int    containerd.default_runtime|untrusted_workload_runtime.cni_max_conf_num -2.0
string containerd.default_runtime|untrusted_workload_runtime.base_runtime_spec|cni_conf_dir|runtime_engine|runtime_path -2.0
string containerd.default_runtime|untrusted_workload_runtime.runtime_root|runtime_type|sandbox_mode|snapshotter -2.0
strings containerd.default_runtime|untrusted_workload_runtime.container_annotations|pod_annotations -2.0
table  containerd.default_runtime|untrusted_workload_runtime.options -2.0

[io.containerd.cri.v1.images]
bool   disable_snapshot_annotations discard_unpacked_layers
bool   image_pull_with_sync_fs
bool   use_local_image_pull 2.1-
int    max_concurrent_downloads stats_collect_period
int    concurrent_layer_fetch_buffer 2.1-
string snapshotter image_decryption.key_model registry.config_path
string pinned_images.* runtime_platforms.*.platform runtime_platforms.*.snapshotter
duration image_pull_progress_timeout
strings registry.mirrors.*.endpoint registry.headers.*
string registry.auths.*.username|password|auth|identitytoken registry.configs.*.auth.username|password|auth|identitytoken
bool   registry.configs.*.tls.insecure_skip_verify -2.0
string registry.configs.*.tls.ca_file|cert_file|key_file -2.0

[io.containerd.grpc.v1.cri]
bool   disable_tcp_service enable_tls_streaming
string stream_server_address stream_server_port x509_key_pair_streaming.tls_cert_file x509_key_pair_streaming.tls_key_file
duration stream_idle_timeout

[]
bool   metrics.grpc_histogram
bool   debug.log_trace_id 2.4-
int    oom_score grpc.uid grpc.gid grpc.max_recv_message_size grpc.max_send_message_size ttrpc.uid ttrpc.gid debug.uid debug.gid
string root state temp cgroup.path debug.address debug.format debug.level metrics.address ttrpc.address
string grpc.address grpc.tcp_address grpc.tcp_tls_ca grpc.tcp_tls_cert grpc.tcp_tls_key
string grpc.tcp_tls_common_name 2.0-
string plugin_dir -2.0
string proxy_plugins.*.address proxy_plugins.*.type
string proxy_plugins.*.platform proxy_plugins.*.exports.* 2.0-
strings proxy_plugins.*.capabilities 2.1-
string stream_processors.*.path stream_processors.*.returns
strings stream_processors.*.accepts stream_processors.*.args stream_processors.*.env
duration timeouts.*

[io.containerd.differ.v1.erofs]
bool   enable_dmverity enable_tar_index
strings mkfs_options

[io.containerd.gc.v1.scheduler]
float  pause_threshold
int    deletion_threshold mutation_threshold
duration schedule_delay startup_delay

[io.containerd.image-verifier.v1.bindir]
int    max_verifiers
string bin_dir
duration per_verifier_timeout

[io.containerd.internal.v1.opt]
string path

[io.containerd.internal.v1.restart]
duration interval -2.0

[io.containerd.metadata.v1.bolt]
bool   no_sync 2.1-
string content_sharing_policy

[io.containerd.metrics.v1.grpc-prometheus]
bool   grpc_histogram

[io.containerd.monitor.container.v1.restart]
duration interval

[io.containerd.monitor.task.v1.cgroups]
bool   no_prometheus

[io.containerd.monitor.v1.cgroups]
bool   no_prometheus -2.0

[io.containerd.nri.v1.nri]
bool   disable disable_connections default_validator.enable
bool   default_validator.reject_custom_seccomp_adjustment default_validator.reject_namespace_adjustment
bool   default_validator.reject_oci_hook_adjustment default_validator.reject_runtime_default_seccomp_adjustment
bool   default_validator.reject_sysctl_adjustment default_validator.reject_unconfined_seccomp_adjustment
string plugin_config_path plugin_path socket_path default_validator.tolerate_missing_plugins_annotation
strings default_validator.required_plugins
duration plugin_registration_timeout plugin_request_timeout

[io.containerd.runtime.v1.linux]
bool   no_shim shim_debug -2.0
string runtime runtime_root shim -2.0

[io.containerd.runtime.v2.task]
bool   sched_core -2.0
strings platforms

[io.containerd.server.v1.debug]
int    uid gid
string address

[io.containerd.server.v1.grpc]
int    uid gid max_recv_message_size max_send_message_size
string address

[io.containerd.server.v1.grpc-tcp]
int    max_recv_message_size max_send_message_size
string address tls_ca tls_cert tls_common_name tls_key

[io.containerd.server.v1.metrics]
string address

[io.containerd.server.v1.ttrpc]
int    uid gid
string address

[io.containerd.service.v1.diff-service]
bool   sync_fs
strings default

[io.containerd.service.v1.tasks-service]
string blockio_config_file rdt_config_file

[io.containerd.shim.v1.manager]
string socket_dir
strings env

[io.containerd.snapshotter.v1.blockfile]
bool   recreate_scratch
string fs_type root_path scratch_file
strings mount_options

[io.containerd.snapshotter.v1.devmapper]
bool   async_remove discard_blocks
string base_image_size fs_options fs_type pool_name root_path

[io.containerd.snapshotter.v1.erofs]
bool   enable_fsverity set_immutable
string default_size dmverity_mode root_path
strings layer_content_caches ovl_mount_options

[io.containerd.snapshotter.v1.native]
string root_path

[io.containerd.snapshotter.v1.overlayfs]
bool   slow_chown sync_remove upperdir_label
string root_path
strings mount_options

[io.containerd.snapshotter.v1.zfs]
string root_path

[io.containerd.transfer.v1.local]
bool   check_platform_supported
int    concurrent_layer_fetch_buffer max_concurrent_downloads max_concurrent_unpacks max_concurrent_uploaded_layers
string config_path
`

// knownKey is a key of containerd's config.
type knownKey struct {
	plugin string // the table it stands in; "": the file itself
	path   string // as in knownKeys
	kind   string
}

// keysKnownTo are the keys of a list such as knownKeys that a release knows.
func keysKnownTo(list string, r release) (keys []knownKey) {
	plugin := ""
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case strings.HasPrefix(line, "["):
			plugin = strings.Trim(words[0], "[]")
			continue
		}
		if last := len(words) - 1; strings.Contains(words[last], "-") {
			if !r.Within(words[last]) {
				continue
			}
			words = words[:last]
		}
		for _, path := range words[1:] {
			keys = append(keys, knownKey{plugin, path, words[0]})
		}
	}
	return keys
}

// each calls f with every value of a tree that a path leads to: names with dots between
// them, * for any name, a|b for either. A value on the way that is not a table ends the
// way, and f gets it.
func each(tree any, path string, f func(at []string, value any)) {
	if tree != nil {
		follow(tree, strings.Split(path, "."), nil, f)
	}
}

func follow(tree any, path, at []string, f func(at []string, value any)) {
	table, ok := tree.(map[string]any)
	if len(path) == 0 || !ok {
		f(at, tree)
		return
	}
	for _, name := range sortedNames(table) {
		names := strings.Split(path[0], "|")
		if path[0] == "*" || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			follow(table[name], path[1:], append(slices.Clone(at), name), f)
		}
	}
}

// wrong returns what a value, which each found, must be and is not; "" if it has the type
// of its key.
func (k knownKey) wrong(at []string, value any) string {
	kinds := map[string]string{
		"bool": "true or false", "int": "a whole number", "float": "a number", "strings": "a list of strings", "table": "a table",
	}
	switch {
	case len(at) < strings.Count(k.path, ".")+1:
		return "a table"
	case k.fits(value):
		return ""
	}
	return cmp.Or(kinds[k.kind], "a string")
}

// fits reports whether a value has the type that a key has.
func (k knownKey) fits(value any) bool {
	switch v := value.(type) {
	case bool:
		return k.kind == "bool"
	case int64:
		return k.kind == "int" || k.kind == "float"
	case float64:
		return k.kind == "float"
	case string:
		return k.kind == "string" || k.kind == "duration"
	case map[string]any:
		return k.kind == "table"
	case []any:
		return k.kind == "strings" && !slices.ContainsFunc(v, func(item any) bool { _, isText := item.(string); return !isText })
	}
	return false
}

// isDuration reports whether a value is a duration as containerd writes them, such as
// 4h0m0s. Empty it is the default.
func isDuration(value any) bool {
	text, _ := value.(string)
	_, err := time.ParseDuration(text)
	return text == "" || err == nil
}
