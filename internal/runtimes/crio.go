package runtimes

import (
	"cmp"
	"strings"
)

// crio reads CRI-O's files (crio.conf(5), crio.conf.d(5)), those in directories below
// crio.conf.d too, and its flags and variables (crio(8)). Release 1.24 was the first with
// CDI.
func crio() tomlRuntime {
	return tomlRuntime{
		product: product{"crio", nil, []string{"github.com/cri-o/cri-o"}, []string{"cri-o"}},
		since:   "1.24", dirsSince: "1.24", main: "/etc/crio/crio.conf", files: (*checker).crioFiles, table: []string{"crio", "runtime"},
		then: "; then systemctl restart crio", unit: "crio.service", socket: "/var/run/crio/crio.sock",
	}
}

// crioFiles are the files that CRI-O reads. One that a flag or a variable names must be
// there.
func (c *checker) crioFiles(_ release, cmd command) (files []string, err error) {
	named := cmp.Or(flagValue(cmd.args, "c", "config"), cmd.env["CONTAINER_CONFIG"])
	files, err = c.Glob(cmp.Or(named, "/etc/crio/crio.conf"))
	if err == nil && named != "" && len(files) == 0 {
		err = &tomlError{message: "there is no " + c.Shown(named) + ", which --config or CONTAINER_CONFIG names"}
	}
	if err != nil {
		return nil, err
	}
	dir := cmp.Or(flagValue(cmd.args, "d", "config-dir"), cmd.env["CONTAINER_CONFIG_DIR"], "/etc/crio/crio.conf.d")
	more, err := c.filesBelow(dir)
	return append(files, more...), err
}

// crioDirs are the directories that CRI-O's flags or else its variables name; nil without
// any.
func crioDirs(cmd command) (dirs []string) {
	given := flagValues(cmd.args, "cdi-spec-dirs")
	if given == nil && cmd.env["CONTAINER_CDI_SPEC_DIRS"] != "" {
		given = []string{cmd.env["CONTAINER_CDI_SPEC_DIRS"]}
	}
	for _, list := range given {
		for dir := range strings.SplitSeq(list, ",") {
			dirs = append(dirs, strings.TrimSpace(dir))
		}
	}
	return dirs
}
