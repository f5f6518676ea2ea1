package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/hyperaccel/lpuctl/internal/features"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Where the config comes from.
const (
	DefaultConfigFile = "/etc/lpuctl/config.yaml"
	smallFileMax      = 1 << 20 // bytes; such a file has a few hundred
	SpecDirVariable   = "LPUCTL_SPEC_DIR"
	ringTableVariable = "LPUCTL_RING_TABLE"
)

// Config is the effective configuration: built-in values, under the config file's, under
// the environment's and the flags'. Models is the whole table, the config file's rows
// first.
type Config struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	CDI        CDIConfig         `json:"cdi"`
	Models     []discovery.Model `json:"models"`
	Ring       RingConfig        `json:"ring"`
	Health     HealthConfig      `json:"health"`
	Serve      ServeConfig       `json:"serve"`
	Leases     LeasesConfig      `json:"leases"`
	Topology   features.Topology `json:"topology"`

	File string `json:"-"` // that was read; "" if there was none
	doc  *strictyaml.Value
	// overrides names what set a value in place of the file, by the value's path.
	overrides map[string]string
}

// RingConfig says where the ring table is.
type RingConfig struct {
	Table string `json:"table"` // path under the root; "": search
}

// CDIConfig says what the CDI spec looks like and where it lies.
type CDIConfig struct {
	Kind        string `json:"kind"`
	SpecDir     string `json:"specDir"`
	Annotations bool   `json:"annotations"`
}

// LoadConfig fills a.Config, once.
func (a *App) LoadConfig() error {
	if a.Config != nil {
		return nil
	}
	if err := host.Spare(); err != nil {
		return err
	}
	info, err := os.Stat(string(a.Root))
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s: not a directory", a.Root)
	}
	if err != nil {
		return WithRemedy(err, "give --root the directory under which the machine's sys, dev and etc lie")
	}
	name, given := a.ConfigFile, a.ConfigFile != ""
	if !given {
		if name, err = a.Root.Resolve(DefaultConfigFile); err != nil {
			return err
		}
	}
	data, err := ReadSmallFile(name)
	if errors.Is(err, fs.ErrNotExist) && !given {
		name, data, err = "", nil, nil
	}
	if err != nil {
		return err
	}
	c, findings := ParseConfig(name, data)
	if len(findings) > 0 {
		return faultyConfig(findings)
	}
	c.override(a.Env, a.SpecDir)
	if dir := c.CDI.SpecDir; !path.IsAbs(dir) {
		return Usage("%s: %q is not an absolute path; it lies under the root", c.Origin("cdi.specDir"), dir)
	}
	a.Config = c
	return nil
}

// override lays the environment and --spec-dir over the file.
func (c *Config) override(env func(string) (string, bool), specDirFlag string) {
	c.overrides = map[string]string{}
	set := func(path string, value *string, to, origin string) {
		if to != "" {
			*value, c.overrides[path] = to, origin
		}
	}
	specDir, _ := env(SpecDirVariable)
	set("cdi.specDir", &c.CDI.SpecDir, specDir, "environment "+SpecDirVariable)
	set("cdi.specDir", &c.CDI.SpecDir, specDirFlag, "flag --spec-dir")
	table, _ := env(ringTableVariable)
	set("ring.table", &c.Ring.Table, table, "environment "+ringTableVariable)
}

// ReadSmallFile reads a regular file of bounded size: a config file or a ring table.
func ReadSmallFile(name string) ([]byte, error) { return wholefile.Read(name, smallFileMax) }

// ParseConfig reads a config file over the built-in values. It returns every fault as an
// error finding.
func ParseConfig(file string, data []byte) (*Config, finding.List) {
	c := &Config{
		CDI: CDIConfig{Kind: cdi.DefaultKind, SpecDir: cdi.DefaultSpecDir}, Health: defaultHealth(), Serve: DefaultServe(),
		Leases: defaultLeases(), File: file,
	}
	doc, faults := strictyaml.Decode(data, c)
	c.doc = doc
	if len(faults) == 0 {
		faults = c.check()
	}
	var findings finding.List
	for _, f := range faults {
		findings.Add(finding.BadConfig, cmp.Or(f.Path, file), f.Message, f.Remedy).At(file, cmp.Or(f.Line, doc.LineOf(f.Path)))
	}
	c.APIVersion, c.Kind = statefile.APIVersion, "Config"
	c.Models = discovery.MergeModels(discovery.BuiltinModels(), c.Models)
	for i := range c.Models {
		enabled := c.Models[i].IsEnabled()
		c.Models[i].Enabled = &enabled
	}
	c.Topology = append(features.Topology{}, c.Topology...) // an empty list is [], not null
	return c, findings
}

// check is what the types do not say: meaning.
func (c *Config) check() (faults strictyaml.Faults) {
	if c.APIVersion != "" && c.APIVersion != statefile.APIVersion {
		faults.Add("apiVersion", fmt.Sprintf("apiVersion %q is not known", c.APIVersion), "write "+statefile.APIVersion)
	}
	if c.Kind != "" && c.Kind != "Config" {
		faults.Add("kind", fmt.Sprintf("kind %q is not a config", c.Kind), "write Config")
	}
	if err := cdi.ValidateKind(c.CDI.Kind); err != nil {
		faults.Add("cdi.kind", err.Error(), "write VENDOR/CLASS")
	}
	if !path.IsAbs(c.CDI.SpecDir) {
		faults.Add("cdi.specDir", fmt.Sprintf("%q is not an absolute path", c.CDI.SpecDir),
			"write "+cdi.DefaultSpecDir+" or /etc/cdi, where runtimes look")
	}
	if c.Ring.Table != "" && !path.IsAbs(c.Ring.Table) {
		faults.Add("ring.table", fmt.Sprintf("%q is not an absolute path", c.Ring.Table), "write "+discovery.InstalledRingTable)
	}
	line := func(entry int) string { return fmt.Sprint("line ", c.doc.LineOf(fmt.Sprint("topology.", entry))) }
	for _, section := range []struct {
		name   string
		faults strictyaml.Faults
	}{
		{"health", c.Health.check()}, {"serve", c.Serve.Check()}, {"leases", c.Leases.check()}, {"topology", c.Topology.Validate(line)},
	} {
		for _, f := range section.faults {
			faults.Add(section.name+"."+f.Path, f.Message, f.Remedy)
		}
	}
	seen := map[string]bool{}
	for i, m := range c.Models {
		path := fmt.Sprintf("models.%d", i)
		if seen[m.Name] {
			faults.Add(path+".name", fmt.Sprintf("model %q is in the file twice", m.Name), "keep one of them")
		}
		seen[m.Name] = true
		for _, f := range m.Validate() {
			faults.Add(path+"."+f.Path, path+"."+f.Path+": "+f.Message, f.Remedy)
		}
	}
	return faults
}

// faultyConfig is an error that is reported as its findings.
type faultyConfig finding.List

func (c faultyConfig) Error() string {
	text := c[0].String()
	if len(c) > 1 {
		text += fmt.Sprintf(" and %d more", len(c)-1)
	}
	return text
}

// ConfigFaults returns what is wrong with the config file, if that is the error; else nil.
func ConfigFaults(err error) finding.List {
	faults, _ := errors.AsType[faultyConfig](err)
	return finding.List(faults)
}

// Origin says where the value at path comes from.
func (c *Config) Origin(path string) string {
	if by, ok := c.overrides[path]; ok {
		return by
	}
	if at, found := c.doc.Find(path); found {
		return fmt.Sprintf("%s:%d", c.File, at.Line)
	}
	return "built in"
}
