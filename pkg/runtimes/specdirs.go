package runtimes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
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

// UnreadSpecDir is a warning that no container runtime of the machine under root reads specs from dir, a path below the
// root; nil if one does. The subject is dir.
func UnreadSpecDir(ctx context.Context, root, dir string) *finding.Finding {
	dirs := SpecDirs(ctx, root)
	if slices.ContainsFunc(dirs, func(d string) bool { return host.Root(root).Same(d, dir) }) {
		return nil
	}
	f := finding.New(finding.SpecDirUnread, dir, fmt.Sprintf("no container runtime of this machine reads specs from here; they read %s",
		strings.Join(dirs, ", ")), "--spec-dir "+dirs[len(dirs)-1]+", or see lpuctl runtime check --spec-dir "+dir)
	return &f
}
