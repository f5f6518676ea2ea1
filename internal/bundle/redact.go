package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	toml "github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// redactor returns what of a file comes into a bundle. The error is why it does not.
type redactor func(p string, data []byte, n *Names) ([]byte, error)

// stateKeys are those keys of lpuctl's own documents whose texts are kept. Others, such as
// commands of users and reasons in their words, are left out.
//
//nolint:gochecknoglobals // a table
var stateKeys = []string{
	"apiVersion", "kind", "boot", "since", "until", "at", "id", "address", "addresses", "owner", "model", "name", "state", "health",
	"via", "severity", "message", "remedy", "subject", "file", "source", "runtime", "version", "cdi", "afterRestart", "ring", "uid",
	"written", "read", "cards", "card", "links", "key", "lpu", "signal",
}

// userKeys are those whose texts name a user: "root(0)" or "kim".
//
//nolint:gochecknoglobals // a table
var userKeys = []string{"user", "by"}

var userName = regexp.MustCompile(`^[^\s(]+`)

// redactState is for a document that lpuctl wrote.
func redactState(_ string, data []byte, n *Names) ([]byte, error) {
	if !json.Valid(data) { // what follows a document is read too
		return nil, errUnparsed
	}
	out, err := editJSON(data, func(keys []string, s string) string {
		last := ""
		if len(keys) > 0 {
			last = keys[len(keys)-1]
		}
		switch {
		case slices.Contains(userKeys, last):
			return userName.ReplaceAllStringFunc(s, n.user)
		case s == "" || isPlain(s):
			return s
		case slices.Contains(stateKeys, last):
			return n.text(s)
		}
		return leftOut
	})
	if err != nil {
		return nil, errUnparsed
	}
	return out, nil
}

// isPlain reports whether a text is a PCI address or a time.
func isPlain(s string) bool {
	if _, err := pci.Parse(s); err == nil {
		return true
	}
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

// redactTable is for a ring table. Its comments are left out.
func redactTable(p string, data []byte, n *Names) ([]byte, error) {
	if path.Ext(p) == ".json" {
		d := json.NewDecoder(bytes.NewReader(data))
		if d.Decode(new(json.RawMessage)) != nil {
			return nil, errUnparsed
		}
		end := d.InputOffset()
		return append([]byte(n.text(string(data[:end]))), shape(data[end:], nil, 0)...), nil
	}
	if _, faults := strictyaml.ReadYAML(data); unreadable(faults) {
		return nil, errUnparsed
	}
	return []byte(n.text(withoutComments(string(data)))), nil
}

// unreadable reports whether a document has faults of syntax.
func unreadable(faults strictyaml.Faults) bool {
	return slices.ContainsFunc(faults, func(f strictyaml.Fault) bool { return f.Kind == strictyaml.Syntax })
}

// redactOwn returns the redactor of lpuctl's config, which can have some keys: "KEY/*" says
// that below a key there can be any. What stands below others is left out, and comments are.
func redactOwn(keys []string) redactor {
	return func(_ string, data []byte, n *Names) ([]byte, error) {
		text, err := editScalars(withoutComments(string(data)), func(above []string, value string) bool {
			for i, key := range above[1:] {
				if !slices.Contains(keys, key) && !slices.Contains(keys, above[i]+"/*") {
					return false
				}
			}
			return above[len(above)-1] != "env" || isOurs(value)
		})
		return []byte(n.text(text)), err
	}
}

// withoutComments takes comments out of YAML, and keeps the lines.
func withoutComments(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		quote := rune(0)
		for at, r := range line {
			switch {
			case quote != 0:
				if r == quote {
					quote = 0
				}
			case (r == '"' || r == '\'') && (at == 0 || strings.ContainsRune(" \t[{,:-", rune(line[at-1]))):
				quote = r
			case r == '#' && (at == 0 || line[at-1] == ' ' || line[at-1] == '\t'):
				lines[i] = strings.TrimRight(line[:at], " \t")
			default:
				continue
			}
			if lines[i] != line {
				break
			}
		}
	}
	return strings.Join(lines, "\n")
}

// specKeys are the keys of CDI specs with texts that are kept
// (https://github.com/cncf-tags/container-device-interface, SPEC.md).
//
//nolint:gochecknoglobals // a table
var specKeys = []string{
	"cdiVersion", "kind", "name", "path", "hostPath", "containerPath", "type", "permissions", "options", "hookName", "hostInterfaceName",
	"closID",
}

// ourVariables begin the names of variables whose values are kept.
//
//nolint:gochecknoglobals // a table
var ourVariables = []string{"LPU", "CDI_", "HYPERACCEL_", "HYPERDEX_", "UDEV_SETTLE_", "XILINX_", "XRT_", "NUM_LPU_"}

func isOurs(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.ContainsFunc(ourVariables, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// redactSpec is for a CDI spec: as it is, without the values of variables and annotations
// of others, arguments of hooks, and keys that are not known.
func redactSpec(p string, data []byte, _ *Names) ([]byte, error) {
	text := string(data)
	if path.Ext(p) != ".json" {
		text = withoutComments(text)
	}
	text, err := editScalars(text, keepsInSpec)
	return []byte(text), err
}

// editScalars leaves out the scalars of a YAML or JSON text that are not kept. keeps gets the
// keys that a scalar stands under, at least one. Lines keep their numbers.
func editScalars(text string, keeps func(above []string, value string) bool) (string, error) {
	document, faults := strictyaml.ReadYAML([]byte(text))
	if unreadable(faults) {
		return "", errUnparsed
	}
	if document == nil {
		return text, nil
	}
	lines := strings.SplitAfter(text, "\n")
	var bad error
	edit := map[int][]*yaml.Node{}
	walk(document.Node, []string{""}, func(above []string, node *yaml.Node) {
		if keeps(above, node.Value) {
			return
		}
		if node.Line < 1 || node.Line > len(lines) {
			bad = errUnplaced
			return
		}
		edit[node.Line] = append(edit[node.Line], node)
	})
	for line, nodes := range edit {
		slices.SortFunc(nodes, func(a, b *yaml.Node) int { return b.Column - a.Column })
		for _, node := range nodes {
			replaced, err := replaceAt(lines[line-1], node)
			if err != nil {
				bad = err
			}
			lines[line-1] = replaced
		}
	}
	// Of what follows the document the shape is taken.
	for i := lastLine(document.Node); i < len(lines) && len(faults) > 0; i++ {
		lines[i] = string(shape([]byte(lines[i]), nil, 0))
	}
	return strings.Join(lines, ""), bad
}

var errUnplaced = errors.New("a value in it that may be secret cannot be taken out")

// specParents are the keys of specs under which others stand, and those with numbers.
//
//nolint:gochecknoglobals // a table
var specParents = []string{
	"devices", "containerEdits", "deviceNodes", "mounts", "hooks", "env", "args", "annotations", "intelRdt", "netDevices",
	"additionalGids", "major", "minor", "uid", "gid", "fileMode", "timeout", "schemata",
}

// keepsInSpec reports whether a text of a spec is kept. above are the keys that it stands
// under.
func keepsInSpec(above []string, value string) bool {
	key := above[len(above)-1]
	foreign := slices.ContainsFunc(above[1:], func(key string) bool {
		return !slices.Contains(specKeys, key) && !slices.Contains(specParents, key) && !strings.HasPrefix(key, "annotations/")
	})
	switch {
	case len(value) < 4 || value == "true" || value == "false" || value == "null":
		return true
	case foreign:
		return false
	case key == "env":
		return isOurs(value)
	case strings.HasPrefix(key, "annotations/"):
		return strings.Contains(key, "lpuctl") || strings.Contains(key, "hyperaccel")
	}
	if _, err := fmt.Sscanf(value, "%d", new(int)); err == nil && len(value) < 8 {
		return true // device numbers and modes
	}
	return slices.Contains(specKeys, key)
}

// lastLine is the line in which the last part of a YAML document begins.
func lastLine(node *yaml.Node) int {
	last := node.Line
	for _, child := range node.Content {
		last = max(last, lastLine(child))
	}
	return last
}

// walk calls each with every scalar of a YAML document and the keys that it stands under.
func walk(node *yaml.Node, above []string, each func([]string, *yaml.Node)) {
	switch node.Kind {
	case yaml.ScalarNode:
		each(above, node)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i].Value
			if above[len(above)-1] == "annotations" {
				key = "annotations/" + key
			}
			walk(node.Content[i+1], append(slices.Clip(above), key), each)
		}
	default:
		for _, child := range node.Content {
			walk(child, above, each)
		}
	}
}

// doubleQuoted is a text with escapes.
var doubleQuoted = regexp.MustCompile(`^"((?:[^"\\]|\\.)*)"`)

// replaceAt leaves out the scalar of a line: of a variable only its value.
func replaceAt(line string, node *yaml.Node) (string, error) {
	at := node.Column - 1
	if at < 0 || at > len(line) {
		return "", errUnplaced
	}
	raw, quote := node.Value, ""
	switch node.Style {
	case yaml.DoubleQuotedStyle:
		quote = `"`
		if m := doubleQuoted.FindStringSubmatch(line[at:]); m != nil {
			raw = m[1]
		}
	case yaml.SingleQuotedStyle:
		quote = `'`
	}
	if !strings.HasPrefix(line[at:], quote+raw+quote) {
		return "", errUnplaced
	}
	with := leftOut
	if name, _, ok := strings.Cut(raw, "="); ok {
		with = name + "=" + leftOut
	}
	return line[:at] + quote + with + line[at+len(quote)+len(raw):], nil
}

// configKeys are the keys of other programs' configs that lpuctl reads, or that say where
// these programs have their files.
//
//nolint:gochecknoglobals // a table
var configKeys = []string{
	"version", "enable_cdi", "cdi_spec_dirs", "disabled_plugins", "required_plugins", "imports", "features", "cdi", "cdi-spec-dirs",
	"cdi_spec_dir", "default_runtime", "runtime", "cdiSpecDirs", "enableCDI", "containerRuntimeEndpoint", "containerd-snapshotter",
}

// redactConfig is for a config of another program or a unit: of it the keys that lpuctl
// reads are kept.
func redactConfig(p string, data []byte, n *Names) ([]byte, error) {
	switch path.Ext(p) {
	case ".json":
		return redactJSONConfig(data, n)
	case ".yaml", ".yml":
		return redactYAMLConfig(data, n)
	case ".service", ".socket", ".timer", ".path":
		return redactUnit(data, n), nil
	}
	if !isTOML(p) {
		return redactUnit(data, n), nil
	}
	return redactTOML(data, n)
}

// isTOML reports whether a file of another program is TOML: all others are, by their names,
// YAML, JSON, or units and what belongs to them.
func isTOML(p string) bool {
	isUnits := strings.HasSuffix(path.Dir(p), ".d") && strings.Contains(p, "/systemd/")
	return path.Ext(p) == ".toml" || path.Ext(p) == ".conf" && !isUnits || strings.Contains(p, "/crio.conf.d/")
}

func redactJSONConfig(data []byte, n *Names) ([]byte, error) {
	d := map[string]any{}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, errUnparsed
	}
	return json.MarshalIndent(keepKnown(d, n), "", "  ")
}

func redactYAMLConfig(data []byte, n *Names) ([]byte, error) {
	d := map[string]any{}
	if err := yaml.Unmarshal(data, &d); err != nil {
		return nil, errUnparsed
	}
	return yaml.Marshal(keepKnown(d, n))
}

// keepKnown returns the known keys of a document at any depth. Of others it is said how
// many there are.
func keepKnown(of map[string]any, n *Names) map[string]any {
	out := map[string]any{}
	omitted := 0
	for key, value := range of {
		below, isMap := value.(map[string]any)
		switch {
		case !slices.Contains(configKeys, key):
			omitted++
		case isMap:
			out[key] = keepKnown(below, n)
		default:
			out[key] = knownValue(value, n)
		}
	}
	if omitted > 0 {
		out["leftOut"] = omitted
	}
	return out
}

// knownValue is the value of a known key: numbers, yes or no, and texts that can be paths
// or names of plugins.
func knownValue(value any, n *Names) any {
	switch v := value.(type) {
	case string:
		return n.text(v)
	case []any:
		for i := range v {
			v[i] = knownValue(v[i], n)
		}
		return v
	case map[string]any:
		return keepKnown(v, n)
	}
	return value
}

// redactTOML keeps the lines of known keys, and the tables that these stand in. Lines keep
// their numbers.
func redactTOML(data []byte, n *Names) ([]byte, error) {
	d := map[string]any{}
	if err := toml.Unmarshal(data, &d); err != nil {
		return nil, errUnparsed
	}
	lines := strings.Split(string(data), "\n")
	depth, header := 0, -1
	for i, line := range lines {
		lines[i] = ""
		text := strings.TrimSpace(line)
		if depth > 0 { // an array of a known key goes on
			lines[i] = uncommented(line)
			depth += brackets(lines[i])
			continue
		}
		key, value, isKey := strings.Cut(text, "=")
		key = strings.Trim(strings.TrimSpace(key), `"'`)
		switch {
		case strings.HasPrefix(text, "["):
			header = i
			lines[i] = "\x00" + uncommented(text)
		case isKey && slices.Contains(configKeys, key) && !strings.Contains(value, "{") && !strings.Contains(value, `"""`) &&
			!strings.Contains(value, "'''"):
			lines[i] = uncommented(line)
			depth = brackets(strings.TrimPrefix(lines[i], key))
			if header >= 0 {
				lines[header] = strings.TrimPrefix(lines[header], "\x00")
			}
		}
	}
	for i := range lines {
		if strings.HasPrefix(lines[i], "\x00") { // a table of which nothing is kept
			lines[i] = ""
		}
	}
	out := []byte(n.text(strings.Join(lines, "\n")))
	if err := toml.Unmarshal(out, &d); err != nil {
		return nil, errUnplaced
	}
	return out, nil
}

// uncommented is a line of TOML without its comment.
func uncommented(line string) string {
	quote := rune(0)
	for at, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '#':
			return strings.TrimRight(line[:at], " \t")
		}
	}
	return line
}

func brackets(line string) int { return strings.Count(line, "[") - strings.Count(line, "]") }

// unitKeys are the keys of units that are kept.
//
//nolint:gochecknoglobals // a table
var unitKeys = []string{
	"Type", "After", "Before", "Wants", "Requires", "PartOf", "WantedBy", "RequiredBy", "Restart", "RestartSec", "LimitMEMLOCK",
	"LimitNOFILE", "ProtectSystem", "PrivateDevices", "DevicePolicy", "DeviceAllow", "DynamicUser", "KillMode", "Delegate", "Slice",
	"OnUnitActiveSec", "OnBootSec", "PathChanged", "PathModified", "PathExists", "ListenStream", "SocketMode", "StartLimitBurst",
}

// redactUnit keeps of a unit what says how it is started, without arguments and without
// variables of others.
func redactUnit(data []byte, n *Names) []byte {
	lines := strings.Split(string(data), "\n")
	goesOn := false
	for i, line := range lines {
		lines[i] = ""
		was := goesOn
		goesOn = strings.HasSuffix(line, `\`)
		key, value, isKey := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case was:
		case strings.HasPrefix(key, "[") && !isKey:
			lines[i] = key
		case isKey && strings.HasPrefix(key, "Exec"):
			program, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			lines[i] = key + "=" + strings.TrimSuffix(program, `\`)
		case key == "Environment":
			lines[i] = unitVariables(value)
		case isKey && !goesOn && slices.Contains(unitKeys, key):
			lines[i] = line
		}
	}
	return []byte(n.text(strings.Join(lines, "\n")))
}

// unitVariables is a line with the variables that are ours.
func unitVariables(value string) string {
	var ours []string
	for word := range strings.FieldsSeq(value) {
		if word = strings.Trim(word, `"'`); isOurs(word) {
			ours = append(ours, word)
		}
	}
	if len(ours) == 0 {
		return ""
	}
	return "Environment=" + strings.Join(ours, " ")
}

// journalKeys are those attributes of lpuctl's log whose values are kept (log/slog).
//
//nolint:gochecknoglobals // a table
var journalKeys = []string{
	"time", "level", "msg", "error", "remedy", "lpu", "lpus", "address", "path", "file", "root", "problems", "finding", "id", "state",
	"health", "resource", "took", "interval", "devices", "reason",
}

var attribute = regexp.MustCompile(`([A-Za-z][\w.]*)=("(?:[^"\\]|\\.)*"|\S*)`)

// journal returns the lines that lpuctl has logged, with the attributes that are known,
// and how many lines are left out.
func journal(lines []string, n *Names) (kept []string, omitted int) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "time=") || !strings.Contains(line, " level=") {
			omitted++
			continue
		}
		var out []string
		for _, m := range attribute.FindAllStringSubmatch(line, -1) {
			if slices.Contains(journalKeys, m[1]) {
				out = append(out, m[1]+"="+n.text(m[2]))
			}
		}
		kept = append(kept, strings.Join(out, " "))
	}
	return kept, omitted
}
