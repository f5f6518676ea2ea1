package runtimes

import (
	"maps"
	"slices"
	"strings"
)

// The keys of CRI's table of version 2 that the plugins of 2.0 divided among them; all
// others went to tableV3.
const (
	serverKeys = "disable_tcp_service stream_server_address stream_server_port stream_idle_timeout enable_tls_streaming " +
		"x509_key_pair_streaming"
	imageKeys = "registry image_decryption max_concurrent_downloads image_pull_progress_timeout image_pull_with_sync_fs " +
		"stats_collect_period"
	// imageKeysDeep are in its table containerd.
	imageKeysDeep = "snapshotter disable_snapshot_annotations discard_unpacked_layers"
)

func listed(list, key string) bool { return slices.Contains(strings.Fields(list), key) }

// effectiveTables are the tables of all plugins as the release reads them, merged and in
// the names of version 3.
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
	all := map[string]any{}
	maps.Copy(all, under)
	for key, value := range over {
		below, isBelow := all[key].(map[string]any)
		if above, isTable := value.(map[string]any); isTable && isBelow {
			value = overlay(below, above)
		}
		all[key] = value
	}
	return all
}

// migrate divides CRI's table of version 2 as the plugins do (containerd, plugins/cri,
// configMigration). What stands in the tables of version 3 already stays for tableV3, and
// gives way for tableImages.
func (v *verdict) migrate(tables map[string]any) map[string]any {
	old, ok := tables[tableV2].(map[string]any)
	if !ok {
		return tables
	}
	server, images, runtime := map[string]any{}, tableOf(tables, tableImages), tableOf(tables, tableV3)
	for key, value := range old {
		switch {
		case listed(serverKeys, key):
			server[key] = value
		case listed(imageKeys, key):
			images[key] = value
		case key == "sandbox_image":
			images["pinned_images"] = map[string]any{"sandbox": value}
		default:
			runtime[key] = under(value, runtime[key])
		}
	}
	containerd := tableOf(old, "containerd")
	for key, value := range containerd { // 2.x forgets them where there is no table of runtimes
		if listed(imageKeysDeep, key) && (v.merging == byTable || containerd["runtimes"] != nil) {
			images[key] = value
		}
	}
	if cni := tableOf(runtime, "cni"); cni["bin_dir"] != nil && v.merging != byTable {
		cni["bin_dirs"] = []any{cni["bin_dir"]}
		delete(cni, "bin_dir")
		runtime["cni"] = cni
	}
	tables = maps.Clone(tables)
	tables[tableV2], tables[tableV3], tables[tableImages] = server, runtime, images
	return tables
}

// tableOf is a copy of a table in a tree; empty if there is none of this name.
func tableOf(tree map[string]any, name string) map[string]any {
	t, _ := tree[name].(map[string]any)
	return overlay(t, nil)
}

// under is a value that gives way to another one, key by key if both are tables.
func under(value, above any) any {
	below, isBelow := value.(map[string]any)
	over, isOver := above.(map[string]any)
	switch {
	case above == nil:
		return value
	case !isBelow || !isOver:
		return above
	}
	both := maps.Clone(below)
	maps.Copy(both, over)
	return both
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
	if slices.Contains(criPlugins(), plugin) {
		places = append(places, append([]string{"plugins", tableV2}, old...), append([]string{"plugins", tableV1}, old...))
	}
	for _, f := range slices.Backward(v.files) {
		for _, place := range places {
			at := f.at(place...)
			if at.line > 0 && (plugin == "" || place[1] == plugin || v.reads(f, place[1])) {
				return at
			}
		}
	}
	return v.at()
}
