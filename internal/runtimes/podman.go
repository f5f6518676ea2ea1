package runtimes

import (
	"cmp"
	"path"
)

// podman reads podman's files (containers.conf(5)). Release 5.5 was the first to read
// cdi_spec_dirs (podman pull request 25717), and the only one that reads /etc/cdi only by
// default (podman issue 26569).
func podman() tomlRuntime {
	modules := []string{"github.com/containers/podman/v4", "github.com/containers/podman/v5", "go.podman.io/podman/v6"}
	return tomlRuntime{
		product: product{"podman", nil, modules, []string{"podman"}},
		since:   "4.1", dirsSince: "5.5", main: "/etc/containers/containers.conf", files: (*checker).podmanFiles,
		table: []string{"engine"}, keys: podmanKeys,
	}
}

// podmanFiles are the files that podman reads if root starts it: since 5.0 those in
// root's home too, and since 6.0 the first main file of three alone, and of each drop-in
// the first of its name (containers/common, pkg/config).
func (c *checker) podmanFiles(r release, _ command) (files []string, err error) {
	const name = "containers/containers.conf"
	ofRoot := path.Join("/root", ".config", name)
	mains := []string{"/usr/share/" + name, "/etc/" + name, ofRoot}
	if r.Before("5.0") {
		mains = mains[:2]
	}
	for i, main := range mains {
		found, globErr := c.Glob(main)
		if err = cmp.Or(err, globErr); len(found) > 0 && !r.Before("6.0") {
			files = nil
		}
		files = append(files, found...)
		if i > 0 && r.Before("6.0") {
			more, listErr := c.Glob(main + ".d/*.conf")
			files, err = append(files, c.noDirectories(more)...), cmp.Or(err, listErr)
		}
	}
	if r.Before("6.0") {
		return files, err
	}
	more, listErr := c.dropIns(ofRoot+".d/*.conf", "/etc/containers/containers.rootful.conf.d/*.conf", "/etc/"+name+".d/*.conf",
		"/usr/share/containers/containers.rootful.conf.d/*.conf", "/usr/share/"+name+".d/*.conf")
	return append(files, c.noDirectories(more)...), cmp.Or(err, listErr)
}

// podmanKeys are the keys of containers.conf and their types, in the form of knownKeys,
// as the configuration of each line of podman from 4.1 to 6.0 declares them
// (containers/common, pkg/config). podman does not start with a value of another type.
// Those that take several types are left out.
const podmanKeys = `
[containers]
bool env_host http_proxy init keyring label no_hosts prepare_volume_on_create
int log_size_max pids_limit userns_size
string apparmor_profile base_hosts_file cgroupns cgroups host_containers_internal_ip init_path ipcns log_driver log_tag netns
string pidns seccomp_profile shm_size tz umask userns utsns
strings annotations default_capabilities default_sysctls default_ulimits devices dns_options dns_searches dns_servers env
strings volumes
bool read_only 4.4-
int oom_score_adj 4.5-
strings cgroup_conf 4.5-
bool label_users 4.6-
strings mounts 4.7-
bool privileged 4.8-
string interface_name 5.0-
bool container_name_as_hostname 5.4-
string log_path 5.6-

[engine]
bool cgroup_check chown_copied_files compat_api_enforce_docker_hub enable_port_reservation multi_image_archive no_pivot_root
bool remote
int exit_command_delay image_parallel_copies num_locks service_timeout stop_timeout
string active_service cgroup_manager compression_format detach_keys events_logfile_path events_logger image_build_format
string image_copy_tmp_dir image_default_format image_default_transport infra_command infra_image init_path lock_type namespace
string pod_exit_policy pull_policy remote_identity remote_uri runtime service_destinations.*.identity
string service_destinations.*.uri static_dir tmp_dir volume_path volume_plugins.*
strings conmon_env_vars conmon_path env helper_binaries_dir hooks_dir network_cmd_options runtime_path runtime_supports_json
strings runtime_supports_kvm runtime_supports_nocgroup runtimes.*
bool machine_enabled -5.0
string network_cmd_path -6.0
string image_volume_mode 4.2-
bool service_destinations.*.is_machine 4.3-
int volume_plugin_timeout 4.3-
string ssh_config 4.3-
strings conmonrs_path 4.3-
bool events_container_create_inspect_data 4.4-
string platform_to_oci_runtime.* 4.4-
string database_backend kube_generate_type 4.5-
int compression_level 4.6-
bool compose_warning_logs 4.7-
int podmansh_timeout 4.7-
strings add_compression compose_providers 4.7-
int retry 5.0-
string retry_delay 5.0-
bool healthcheck_events 5.1-
strings cdi_spec_dirs 5.1-
strings runtimes_flags.* 5.6-
string service_destinations.*.tls_ca service_destinations.*.tls_cert service_destinations.*.tls_key 5.7-

[machine]
int cpus disk_size memory
string image user
strings volumes
string provider 4.5-
bool rosetta 5.0-
bool import_native_ca 6.0-

[network]
string default_network default_subnet network_backend network_config_dir
strings cni_plugin_dirs -6.0
int dns_bind_port 4.2-
strings netavark_plugin_dirs 4.5-
string default_rootless_network_cmd 4.6-
strings pasta_options 4.6-
string firewall_driver 5.0-
string rootless_port_forwarder 6.0-
strings default_host_ips 6.0-

[secrets]
string driver opts.*

[configmaps]
string driver opts.*

[farms]
string default 4.7-
strings list.* 4.7-

[podmansh]
int timeout 5.1-
string container shell 5.1-
`
