package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in a release build; else the build information tells.
var version string

type versionInfo struct {
	header
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(a *app) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of lpuctl",
		Example: `  lpuctl version
  lpuctl version -o json`,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if f.isDocument() {
				return writeDocument(a.out, f, v)
			}
			_, err := fmt.Fprintln(a.out, v)
			return err
		},
	}
	a.formatFlag(cmd, &f, formatTable, formatJSON, formatYAML)
	return cmd
}

func (v versionInfo) String() string {
	return fmt.Sprintf("lpuctl %s (%s, %s)", v.Version, v.Go, v.Platform)
}

func readVersion() versionInfo {
	v := versionInfo{header: newHeader("Version"), Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if version == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			v.Version = info.Main.Version
		}
	}
	return v
}
