package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// leftOut stands in place of a value.
const leftOut = "left out"

// Names replaces names of hosts, users and addresses of networks by stand-ins: the same
// name always by the same one.
type Names struct {
	known map[string]string // stand-ins by names
	used  map[string]int    // how often each stand-in was put in
	next  map[string]int    // of each kind, the number of the latest
	match *regexp.Regexp    // of all known names; nil: to be made
	open  map[string]bool   // long words that are no secrets
	pods  map[string]string // stand-ins by "pod ", "namespace ", "container ", and the name
}

// NewNames returns the names of a host, which may have a domain, and of its users.
func NewNames(hosts, users []string) *Names {
	n := &Names{known: map[string]string{}, used: map[string]int{}, next: map[string]int{}, open: map[string]bool{}, pods: map[string]string{}}
	for _, h := range hosts {
		n.add("host", h)
		short, _, _ := strings.Cut(h, ".")
		n.add("host", short)
	}
	for _, u := range users {
		n.add("user", u)
	}
	return n
}

// kept are names that say nothing of whose machine it is, and words of our own.
//
//nolint:gochecknoglobals // a table
var kept = []string{
	"localhost", "root", "lpu", "lpuctl", "orion", "bertha", "node", "card", "containerd", "docker", "podman", "user", "host",
}

func (n *Names) add(kind, name string) {
	if len(name) < 2 || isNumber(name) || n.known[name] != "" || slices.Contains(kept, strings.ToLower(name)) {
		return
	}
	n.next[kind]++
	n.known[name] = fmt.Sprintf("%s-%d", kind, n.next[kind])
	n.match = nil
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }

// AddUsers adds names of users that the machine's files do not have.
func (n *Names) AddUsers(names ...string) {
	for _, name := range names {
		n.add("user", name)
	}
}

// user returns the stand-in for a user.
func (n *Names) user(name string) string {
	n.add("user", name)
	if in := n.known[name]; in != "" {
		n.used[in]++
		return in
	}
	return name
}

// Texts that are a secret or name a machine, wherever they stand.
var (
	// Of these a capturing group is kept.
	afterWord = regexp.MustCompile(`(?i)((?:` +
		`token|passw(?:or)?d|passphrase|secret|credential|api[-_]?key|auth|private[-_]?key|bearer|basic|cookie|session)` +
		`[\w.-]*(?:"?\s*[=:]\s*"?|\s+))[^\s"',;]+`)
	inURL    = regexp.MustCompile(`(\w+://)[^\s/@"']+@`)
	pem      = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|$)`)
	longText = regexp.MustCompile(`[A-Za-z0-9+/_=-]{20,}`)
	mixed    = regexp.MustCompile(`[0-9].*[A-Za-z]|[A-Za-z].*[0-9]`)
	// What a parser of YAML names where nothing defines it: any word of a file.
	anchor = regexp.MustCompile(`(unknown anchor )'[^']*'`)
	ipText = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b|\[?[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:\]|\b)`)
	mail   = regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`)
)

// secrets leaves out what looks like a secret.
func (n *Names) secrets(text string) string {
	out := func(re *regexp.Regexp, with string) {
		text = re.ReplaceAllStringFunc(text, func(s string) string {
			n.used["secrets"]++
			return re.ReplaceAllString(s, with)
		})
	}
	out(pem, leftOut)
	out(inURL, "${1}left-out@")
	out(mail, "left-out")
	out(anchor, "${1}'left-out'")
	out(afterWord, "${1}left-out")
	return longText.ReplaceAllStringFunc(text, func(s string) string {
		if !strings.HasPrefix(s, "/") {
			return n.word(s)
		}
		elements := strings.Split(s, "/")
		for i, element := range elements {
			if len(element) >= longWord {
				elements[i] = n.word(element)
			}
		}
		return strings.Join(elements, "/")
	})
}

// longWord is from what length on a word of letters and digits can be a secret.
const longWord = 20

// word leaves out a long word that can be a secret.
func (n *Names) word(s string) string {
	if n.open[s] || !mixed.MatchString(s) || isUUIDOrName(s) {
		return s
	}
	n.used["secrets"]++
	return "left-out"
}

// publish says that the long words of a text are no secrets.
func (n *Names) publish(text string) {
	for _, word := range longText.FindAllString(text, -1) {
		n.open[word] = true
	}
}

// isUUIDOrName reports whether a long text is words and numbers, as names of units and
// cards are: "lpuctl-runtime-check", or the id of a boot.
func isUUIDOrName(s string) bool {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '-' || r == '_' || r == '=' }) {
		if len(part) > 12 && mixed.MatchString(part) {
			return false
		}
	}
	return strings.ContainsAny(s, "-_")
}

// text replaces names, addresses and secrets in a text.
func (n *Names) text(text string) string {
	text = n.inPods(n.secrets(text))
	text = ipText.ReplaceAllStringFunc(text, func(s string) string {
		ip, err := netip.ParseAddr(strings.Trim(s, "[]"))
		if err != nil || ip.IsLoopback() || ip.IsUnspecified() {
			return s
		}
		n.addIP(s)
		n.used[n.known[s]]++
		return n.known[s]
	})
	if n.match == nil && len(n.known) > 0 {
		names := slices.Collect(maps.Keys(n.known))
		slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
		for i := range names {
			names[i] = regexp.QuoteMeta(names[i])
		}
		n.match = regexp.MustCompile(`(^|[^A-Za-z0-9_])(` + strings.Join(names, "|") + `)($|[^A-Za-z0-9_])`)
	}
	if n.match == nil {
		return text
	}
	for range 2 { // two names beside each other share what is between them
		text = n.match.ReplaceAllStringFunc(text, func(s string) string {
			parts := n.match.FindStringSubmatch(s)
			in := n.known[parts[2]]
			n.used[in]++
			return parts[1] + in + parts[3]
		})
	}
	return text
}

func (n *Names) addIP(s string) {
	if n.known[s] == "" {
		n.next["ip"]++
		n.known[s] = fmt.Sprintf("ip-%d", n.next["ip"])
		n.match = nil
	}
}

// podText is how pods, claims and containers in them are named in texts. Such names can be
// any word: they are no names elsewhere.
var podText = regexp.MustCompile(
	`\b(pod|claim) ([a-z0-9][a-z0-9.-]*)/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?:(, container )([a-z0-9](?:[a-z0-9-]*[a-z0-9])?))?`)

// inPods replaces the names of pods and claims, of their namespaces and containers.
func (n *Names) inPods(text string) string {
	return podText.ReplaceAllStringFunc(text, func(s string) string {
		m := podText.FindStringSubmatch(s)
		out := m[1] + " " + n.standIn("namespace", m[2]) + "/" + n.standIn(m[1], m[3])
		if m[4] != "" {
			out += m[4] + n.standIn("container", m[5])
		}
		return out
	})
}

// standIn returns the stand-in for a name of a kind that is replaced in some places only.
func (n *Names) standIn(kind, name string) string {
	in := n.pods[kind+" "+name]
	if in == "" {
		n.next[kind]++
		in = fmt.Sprintf("%s-%d", kind, n.next[kind])
		n.pods[kind+" "+name] = in
	}
	n.used[in]++
	return in
}

// container is the id of one.
var container = regexp.MustCompile(`^[0-9a-f]{64}$`)

// json replaces in all strings of a JSON text; what is no JSON is left out.
func (n *Names) json(text []byte) []byte {
	out, err := editJSON(text, func(keys []string, s string) string {
		switch key := append([]string{""}, keys...)[len(keys)]; {
		case slices.Contains(userKeys, key):
			return userName.ReplaceAllStringFunc(s, n.user)
		case key == "container" && container.MatchString(s):
			return s
		}
		return n.text(s)
	})
	if err != nil {
		return []byte("null")
	}
	return out
}

// notes says what was replaced how often. It names no name.
func (n *Names) notes() []Note {
	all := []Note{}
	for _, in := range slices.Sorted(maps.Keys(n.used)) {
		what, _, _ := strings.Cut(in, "-")
		why := map[string]string{"host": "the name of a host", "user": "the name of a user", "ip": "an address of a network",
			"pod": "the name of a pod", "claim": "the name of a claim", "namespace": "the name of a namespace",
			"container": "the name of a container", "secrets": "looked like secrets"}[what]
		all = append(all, Note{in, why, n.used[in]})
	}
	return all
}

// editJSON changes the strings of a JSON text. path has the keys that lead to one.
func editJSON(text []byte, edit func(path []string, s string) string) ([]byte, error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.MarshalIndent(editValue(v, nil, edit), "", "  ")
}

func editValue(v any, path []string, edit func(path []string, s string) string) any {
	switch v := v.(type) {
	case string:
		return edit(path, v)
	case []any:
		for i := range v {
			v[i] = editValue(v[i], path, edit)
		}
	case map[string]any:
		for key := range v {
			v[key] = editValue(v[key], append(slices.Clip(path), key), edit)
		}
	}
	return v
}
