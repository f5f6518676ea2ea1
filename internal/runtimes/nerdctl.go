package runtimes

// nerdctl reads nerdctl's file (nerdctl, docs/config.md). It does CDI itself, whatever
// the config of containerd's CRI is.
func nerdctl() tomlRuntime {
	modules := []string{"github.com/containerd/nerdctl/v2", "github.com/containerd/nerdctl"}
	const main = "/etc/nerdctl/nerdctl.toml"
	return tomlRuntime{
		product: product{"nerdctl", nil, modules, []string{"nerdctl"}},
		since:   "2.1", dirsSince: "2.1", main: main,
		files: func(c *checker, _ release, _ command) ([]string, error) { return c.Glob(main) },
	}
}
