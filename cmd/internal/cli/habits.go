package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// commandHabits are commands that people know from other programs, and what lpuctl has
// for them. What is not part of the command stands behind it in brackets.
func commandHabits() map[string]string {
	return map[string]string{
		"lpuctl info":       "lpuctl list -o wide (lpuctl describe LPU shows everything about one)",
		"lpuctl show":       "lpuctl list",
		"lpuctl diagnose":   "lpuctl doctor",
		"lpuctl smi":        "lpuctl list",
		"lpuctl monitor":    "lpuctl top",
		"lpuctl watch":      "lpuctl list --watch",
		"lpuctl events":     "lpuctl list --watch",
		"lpuctl free":       "lpuctl allocate (names an LPU that is free; -n 4 names four)",
		"lpuctl who":        "lpuctl list (USED-BY has who uses an LPU)",
		"lpuctl users":      "lpuctl list (USED-BY has who uses an LPU)",
		"lpuctl exec":       "lpuctl run",
		"lpuctl drain":      "lpuctl cordon LPU --reason TEXT (what has the LPU keeps it)",
		"lpuctl reset":      "lpuctl health (no command resets a card; the remedy of what is wrong with it says what does)",
		"lpuctl logs":       "journalctl -u lpuctl-serve (its other units: systemctl list-units 'lpuctl*')",
		"lpuctl install":    "lpuctl cdi refresh",
		"lpuctl cdi write":  "lpuctl cdi refresh",
		"lpuctl cdi update": "lpuctl cdi refresh",
		"lpuctl cdi apply":  "lpuctl cdi refresh",

		"lpuctl cdi install":       "lpuctl cdi refresh",
		"lpuctl cdi enable":        "lpuctl runtime check (its remedies switch CDI on)",
		"lpuctl runtime enable":    "lpuctl runtime check (its remedies switch CDI on)",
		"lpuctl runtime configure": "lpuctl runtime check (its remedies switch CDI on)",
	}
}

// flagHabit is what a command has for a flag that people know from kubectl, podman and
// nvidia-smi; "" if it has nothing.
func flagHabit(cmd *cobra.Command, name string) string {
	if meant := formatHabit(cmd, name); meant != "" {
		return meant
	}
	switch name {
	case "m":
		return "-o matrix"
	case "L":
		return "lpuctl list"
	case "w", "watch":
		return "lpuctl list --watch"
	case "number":
		return "-n"
	}
	return verboseHabit(cmd, name)
}

// verboseHabit is what a command has for a flag by which other programs say more, less or
// something in another order.
func verboseHabit(cmd *cobra.Command, name string) string {
	isList := cmd.Name() == "list" && cmd.Parent() == cmd.Root()
	path := cmd.CommandPath()
	switch name {
	case "v", "verbose", "debug":
		if cmd == cmd.Root() {
			return path + " --version (--log-level debug logs more)"
		}
		return path + " --log-level debug"
	case "V", "version":
		if cmd.Flags().Lookup("cdi-version") != nil {
			return "lpuctl version (--cdi-version is that of the spec)"
		}
		return "lpuctl version"
	case "A", "a", "all", "all-namespaces":
		if isList || cmd == cmd.Root() {
			return "lpuctl list (it shows every LPU)"
		}
	case "short":
		if cmd.Name() == "version" {
			return "lpuctl version (it is one line)"
		}
	case "sort-by", "sort":
		if cmd.Flags().Lookup("no-headers") != nil {
			return path + " --no-headers | sort -k2 (by the second column)"
		}
	}
	return ""
}

// formatHabit is what a command has for a flag that chooses a format, or a file.
func formatHabit(cmd *cobra.Command, name string) string {
	meant := map[string]Format{"json": FormatJSON, "yaml": FormatYAML, "wide": FormatWide, "short": FormatName, "name": FormatName}[name]
	f := cmd.Flags().Lookup("format")
	switch {
	case f == nil && name == "output" && cmd.Flags().Lookup("spec-dir") != nil:
		return "lpuctl cdi generate --output FILE (--spec-dir is where runtimes look)"
	case f == nil:
		return ""
	case name == "output":
		return "-o FORMAT"
	case name == "headers", name == "noheaders":
		return "--no-headers"
	}
	if value, ok := f.Value.(*formatValue); ok && meant != "" && slices.Contains(value.have, meant) {
		return "-o " + string(meant)
	}
	return ""
}
