package runtimes

import (
	"context"
	"slices"
)

// SpecDirs are the directories that the container runtimes of the machine under root read specs from, or would with CDI
// on, sorted. It reads files only and asks no daemon. A runtime whose answer is not known, and a machine without any,
// count as reading what the CDI library reads by default.
func SpecDirs(ctx context.Context, root string) (dirs []string) {
	for _, r := range Check(ctx, root, Options{filesOnly: true}) {
		if len(r.SpecDirs) == 0 && r.CDI != Unsupported {
			r.SpecDirs = bothDirs()
		}
		dirs = append(dirs, r.SpecDirs...)
	}
	if len(dirs) == 0 {
		dirs = bothDirs()
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
