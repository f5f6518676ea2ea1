package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// ClaimKind is the CDI kind of the files that the DRA driver writes, one for each claim
// that it has prepared. Their devices set variables only: the nodes are those of the
// LPUs' own devices, by PCI address.
const ClaimKind = "hyperaccel.ai/lpu-claim"

// Claim is what the file of a claim says. It is enough to know who has which LPU when
// everything else about the claim is lost.
type Claim struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	UID       string         `json:"uid"`
	Requests  []ClaimRequest `json:"requests"`
}

// String is namespace/name.
func (c *Claim) String() string { return c.Namespace + "/" + c.Name }

// LPUs are those of all requests.
func (c *Claim) LPUs() (all []pci.Address) {
	for _, r := range c.Requests {
		all = append(all, r.lpus()...)
	}
	return all
}

// ClaimRequest is one request of a claim: what a container gets that asks for it.
type ClaimRequest struct {
	Name    string        `json:"name"` // of the claim's spec, without a subrequest
	Devices []ClaimDevice `json:"devices"`
	// List: the container learns its LPUs from the variables that every other program
	// that hands out LPUs sets too.
	List bool `json:"list"`
}

// ClaimDevice is one device of a request.
type ClaimDevice struct {
	Name string        `json:"name"` // in the ResourceSlice
	LPUs []pci.Address `json:"lpus"` // in ring order
}

// Variables of a claim, after its prefix. They are the same for each container, whatever
// else it gets, and so are set always.
const (
	claimDevices = "DEVICES" // names in the ResourceSlice
	// PCI addresses in ring order, with semicolons between those of several devices.
	claimAddresses = "ADDRESSES"
	claimVisible   = "VISIBLE_DEVICES" // as LPU_VISIBLE_DEVICES
	claimConnected = "CONNECTED"       // as LPU_CONNECTED
	claimName      = "NAME"            // namespace/name
)

// ClaimFile is the path of a claim's file in a spec directory. The uid is one of
// Kubernetes.
func ClaimFile(specDir, uid string) string { return filepath.Join(specDir, claimPrefix()+uid+".json") }

func claimPrefix() string { return fileName(ClaimKind) + "-" }

// ClaimUID is the uid of the claim whose file has this path, and whether it is such a
// path.
func ClaimUID(path string) (uid string, ok bool) {
	uid, ok = strings.CutPrefix(filepath.Base(path), claimPrefix())
	if !ok {
		return "", false
	}
	uid, ok = strings.CutSuffix(uid, ".json")
	return uid, ok && ValidUID(uid)
}

// ValidUID reports whether a uid can be part of a file name and of a CDI name. Those of
// Kubernetes are UUIDs.
func ValidUID(uid string) bool {
	letter := func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	odd := func(r rune) bool { return !letter(r) && r != '-' }
	return uid != "" && len(uid) <= 64 && !strings.ContainsFunc(uid, odd) && letter(rune(uid[0])) && letter(rune(uid[len(uid)-1]))
}

// ClaimDeviceName is the device in a claim's file for a request. It begins with a letter:
// a digit would need cdiVersion 0.5.0.
func ClaimDeviceName(uid, request string) string { return "claim-" + uid + "-" + request }

// uuidLength is that of the uids of Kubernetes.
const uuidLength = 36

// ParseClaimDevice returns the uid and the request of a qualified name that
// [ClaimDeviceName] has made, and whether it is one.
func ParseClaimDevice(name string) (uid, request string, ok bool) {
	rest, ok := strings.CutPrefix(name, ClaimKind+"=claim-")
	if !ok || len(rest) <= uuidLength || rest[uuidLength] != '-' {
		return "", "", false
	}
	uid, request = rest[:uuidLength], rest[uuidLength+1:]
	return uid, request, request != "" && ValidUID(uid)
}

// inVariable is a name of Kubernetes as part of a variable's: "big-one" becomes BIG_ONE.
func inVariable(name string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// claimVariable is the name of a variable of a claim. All requests of a claim but an only
// one have variables of their own.
func claimVariable(uid, name, request string) string {
	variable := "LPU_CLAIM_" + inVariable(uid[:min(8, len(uid))]) + "_" + name
	if request != "" {
		variable += "_" + inVariable(request)
	}
	return variable
}

// ClaimSpec returns the spec of a claim's file. Of an only request it sets the variables
// that describe the LPUs of a container as a whole. With several it cannot be known which
// of them a container asks for, so each has a list of its own. Each request has the ring
// table of its LPUs. The error says that an LPU is not on this node.
func ClaimSpec(inv *discovery.Inventory, c Claim, o Options) (*specs.Spec, error) {
	spec := &specs.Spec{Kind: ClaimKind}
	fabric := inv.Cabled() // whatever their health, so that a file that is written again is the same
	for _, r := range c.Requests {
		var names, addresses []string
		for _, d := range r.Devices {
			names, addresses = append(names, d.Name), append(addresses, joinAddresses(d.LPUs))
		}
		cards, err := cardsAt(inv, r.lpus())
		if err != nil {
			return nil, err
		}
		lpus, list := Container(inv, fabric, cards)
		suffix := ""
		if len(c.Requests) > 1 {
			suffix = r.Name
			list = []Variable{{Name: visibleDevices + "_" + inVariable(r.Name), Value: joinIndices(lpus, ",")}}
		}
		if !r.List {
			list = nil
		}
		own := func(name, value string) {
			list = append(list, Variable{Name: claimVariable(c.UID, name, suffix), Value: value})
		}
		own(claimVisible, joinIndices(lpus, ","))
		own(claimAddresses, strings.Join(addresses, ";"))
		if fabric.Cabled() {
			_, pieces := fabric.Order(cards)
			own(claimConnected, fmt.Sprint(pieces == 1))
		}
		own(claimDevices, strings.Join(names, ","))
		suffix = ""
		own(claimName, c.Namespace+"/"+c.Name)
		e := Edits{Env: list}
		e.mountTable(inv, cards, o)
		spec.Devices = append(spec.Devices, specs.Device{Name: ClaimDeviceName(c.UID, r.Name), ContainerEdits: e.container()})
	}
	return spec, setVersion(spec, "")
}

// WriteClaimTables puts the ring tables in place, under a root, that the file of a claim
// names.
func WriteClaimTables(root host.Root, inv *discovery.Inventory, c Claim) (failed error) {
	for _, r := range c.Requests {
		cards, err := cardsAt(inv, r.lpus())
		if err != nil {
			return err
		}
		if t := RingTableOf(inv, cards); t != nil {
			failed = cmp.Or(failed, t.Write(root))
		}
	}
	return failed
}

// MarkClaim is [MarkRingTables] for the containers of a claim.
func MarkClaim(root host.Root, inv *discovery.Inventory, c Claim) (failed error) {
	for _, r := range c.Requests {
		cards, err := cardsAt(inv, r.lpus())
		if err == nil {
			err = MarkRingTables(root, inv, cards)
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}

// lpus are those of all devices of a request.
func (r *ClaimRequest) lpus() (all []pci.Address) {
	for _, d := range r.Devices {
		all = append(all, d.LPUs...)
	}
	return all
}

// cardsAt are the positions of LPUs in an inventory.
func cardsAt(inv *discovery.Inventory, addresses []pci.Address) (cards []int, err error) {
	for _, a := range addresses {
		i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address == a })
		if i < 0 {
			return nil, fmt.Errorf("there is no LPU at %s on this node", a)
		}
		cards = append(cards, i)
	}
	return cards, nil
}

func joinAddresses(addresses []pci.Address) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// ParseClaim reads the bytes of the file of a claim with this uid, as ClaimSpec has made
// it. The error says what is missing.
func ParseClaim(data []byte, uid string) (*Claim, error) {
	spec, err := parse(data)
	if err != nil {
		return nil, err
	}
	return claimOf(spec, uid)
}

// claimOf is the claim with this uid that a spec is of.
func claimOf(spec *specs.Spec, uid string) (*Claim, error) {
	if spec.Kind != ClaimKind || !ValidUID(uid) {
		return nil, fmt.Errorf("kind %.80q of a claim with the uid %.80q, expected %s", spec.Kind, uid, ClaimKind)
	}
	c := &Claim{UID: uid}
	for _, d := range spec.Devices {
		r, err := c.parse(d, len(spec.Devices) > 1)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", d.Name, err)
		}
		c.Requests = append(c.Requests, r)
	}
	if len(c.Requests) == 0 {
		return nil, errors.New("it has no device")
	}
	return c, nil
}

// parse reads the device of a request, of one of several or of the only one.
func (c *Claim) parse(d specs.Device, several bool) (r ClaimRequest, err error) {
	set := map[string]string{}
	for _, variable := range d.ContainerEdits.Env {
		name, value, _ := strings.Cut(variable, "=")
		set[name] = value
	}
	r.Name = strings.TrimPrefix(d.Name, ClaimDeviceName(c.UID, ""))
	suffix := ""
	_, r.List = set[visibleDevices]
	if several {
		suffix = r.Name
		_, r.List = set[visibleDevices+"_"+inVariable(r.Name)]
	}
	var named bool
	c.Namespace, c.Name, named = strings.Cut(set[claimVariable(c.UID, claimName, "")], "/")
	names := strings.Split(set[claimVariable(c.UID, claimDevices, suffix)], ",")
	addresses := strings.Split(set[claimVariable(c.UID, claimAddresses, suffix)], ";")
	if r.Name == d.Name || !named || len(names) != len(addresses) {
		return r, errors.New("it is not that of a request of this claim")
	}
	for i, name := range names {
		device := ClaimDevice{Name: name}
		for text := range strings.SplitSeq(addresses[i], ",") {
			a, err := pci.Parse(text)
			if err != nil {
				return r, err
			}
			device.LPUs = append(device.LPUs, a)
		}
		r.Devices = append(r.Devices, device)
	}
	return r, nil
}

// ClaimsIn are the files of claims in a directory, which is a path of this machine,
// sorted, and the claims that they are of. A file that cannot be used is left out. The
// error is that the directory cannot be read, or that there is a shortage.
func ClaimsIn(dir string) (files []string, claims []*Claim, err error) {
	all, err := specFiles(dir, ".json")
	if host.IsAbsent(err) {
		return nil, nil, nil
	}
	for _, path := range all {
		uid, ok := ClaimUID(path)
		if !ok {
			continue
		}
		data, err := wholefile.Read(path, SpecMax)
		if host.IsShortage(err) {
			return nil, nil, err
		}
		if err != nil {
			continue
		}
		if c, err := ParseClaim(data, uid); err == nil {
			files, claims = append(files, path), append(claims, c)
		}
	}
	return files, claims, err
}
