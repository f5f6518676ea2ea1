package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in a release build; else the build information tells.
var version string

// Version identifies the build.
type Version struct {
	Header
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// newVersionCommand makes the command that prints the version.
func newVersionCommand(a *App) *cobra.Command {
	var f Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of lpuctl",
		Example: `  lpuctl version
  lpuctl version -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := ReadVersion()
			if f.IsDocument() {
				return a.WriteDocument(f, v)
			}
			return a.WriteLines(v.of(cmd.Root().Name()))
		},
	}
	a.FormatFlag(cmd, &f)
	return cmd
}

// of is the version on one line, of a program.
func (v Version) of(program string) string {
	return fmt.Sprintf("%s %s (%s, %s)", program, v.Version, v.Go, v.Platform)
}

// ReadVersion says which build this is.
func ReadVersion() Version {
	v := Version{Header: NewHeader("Version"), Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if version == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			v.Version = info.Main.Version
		}
	}
	return v
}

// BuildLabels are the labels of metrics that identify the build.
func BuildLabels() []string {
	v := ReadVersion()
	return []string{"version", v.Version, "goversion", v.Go}
}
