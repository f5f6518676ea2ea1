package plugin

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// GetDevicePluginOptions says which optional calls the kubelet should make. The kubelet
// asks this and ignores the options in the Register call.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	prestart := p.state.Load().options.PreStart
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: prestart}, nil
}

// ListAndWatch sends the list of devices at once and then whenever it changes. It always
// sends the latest list: a slow kubelet misses lists in between, and never the last one.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		s := p.state.Load()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: s.list}); err != nil {
			return err
		}
		select {
		case <-s.changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// lpus finds LPUs by their ids: positions in the inventory, in ascending order and
// without duplicates, and the ids that no LPU has.
func (s *state) lpus(ids []string) (cards []int, unknown []string) {
	for _, id := range ids {
		if i, ok := s.Cards[id]; ok {
			cards = append(cards, i)
		} else {
			unknown = append(unknown, id)
		}
	}
	slices.Sort(cards)
	return slices.Compact(cards), unknown
}

// GetPreferredAllocation picks LPUs by the rule of [ring.Fabric.Choose]. It logs each
// decision with all that is needed to make it again. It ignores available ids that it
// does not know, as long as there are enough others.
func (p *Plugin) GetPreferredAllocation(ctx context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	s, answer := p.state.Load(), &api.PreferredAllocationResponse{}
	if err := p.fresh(s); err != nil {
		return nil, err
	}
	for _, c := range r.ContainerRequests {
		ids, err := p.prefer(ctx, s, c)
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

func (p *Plugin) prefer(ctx context.Context, s *state, r *api.ContainerPreferredAllocationRequest) ([]string, error) {
	available, ignored := s.lpus(r.AvailableDeviceIDs)
	must, unknown := s.lpus(r.MustIncludeDeviceIDs)
	if len(unknown) > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "there is no device %s on this node", strings.Join(unknown, ", "))
	}
	for _, card := range must { // these are the pod's already: a cordon does not take them away
		if err := s.refuse(card, false); err != nil {
			return nil, err
		}
	}
	refusable := []string{} // the kubelet does not know yet that Allocate would refuse these
	available = slices.DeleteFunc(available, func(card int) bool {
		err := s.refuse(card, !slices.Contains(must, card))
		if err != nil {
			refusable = append(refusable, s.Inventory.LPUs[card].Name)
		}
		return err != nil
	})
	d, err := allocate.Decide(s.Inventory, s.Fabric, allocate.Wish{Size: int(r.AllocationSize), Free: available, Must: must})
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "cannot choose: %v%s", err, notUsable(refusable))
	}
	// Not d.Connected itself: a text log would show an address.
	outcome, connected := "unknown", any(nil)
	if d.Connected != nil { // there is a ring table
		outcome, connected = "unconnected", *d.Connected
	}
	if connected == true {
		outcome = "connected"
	}
	refused := s.options.RequireConnected && r.AllocationSize > 1 && connected != true
	if refused {
		outcome = "refused"
	}
	p.metrics.preferences.Add(1, "size", strconv.Itoa(d.Explanation.Size), "outcome", outcome)
	attributes := []any{
		"size", r.AllocationSize, "available", d.Explanation.Free, "mustInclude", d.Explanation.MustInclude, "chosen", d.LPUs,
		"unhealthy", s.unhealthy(), "connected", connected, "freeAfter", d.FreeAfter, "reason", d.Explanation.Reason, "candidates", candidates(d),
	}
	if len(refusable) > 0 {
		attributes = append(attributes, "notUsableNow", refusable)
	}
	if len(ignored) > 0 {
		attributes = append(attributes, "unknown", ignored)
	}
	if refused {
		p.log.WarnContext(ctx, DecisionMessage, append(attributes, "refused", true)...)
		return nil, status.Errorf(codes.ResourceExhausted, "%d connected LPUs are not free: %s", r.AllocationSize, d.Explanation.Reason)
	}
	p.log.InfoContext(ctx, DecisionMessage, attributes...)
	var ids []string
	for _, card := range d.Chosen {
		ids = append(ids, cdi.AddressName(s.Inventory.LPUs[card].Address))
	}
	return ids, nil
}

// unhealthy are the names of the LPUs that are: their cables do not count.
func (s *state) unhealthy() []string {
	names := []string{}
	for _, l := range s.Inventory.LPUs {
		if l.Health == discovery.Unhealthy {
			names = append(names, l.Name)
		}
	}
	return names
}

// notUsable names LPUs that the kubelet takes for available and that are not, for the end
// of a message.
func notUsable(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; not usable at this moment: " + strings.Join(names, ", ")
}

// DecisionMessage is the message of the log line that holds a decision.
const DecisionMessage = "preferred allocation"

func candidates(d *allocate.Decision) [][]string {
	sets := [][]string{}
	for _, c := range d.Explanation.Candidates {
		sets = append(sets, c.LPUs)
	}
	return sets
}

// Allocate hands out LPUs: all of a request or, if one of them cannot be handed out,
// none.
func (p *Plugin) Allocate(ctx context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	s, answer, handedOut := p.state.Load(), &api.AllocateResponse{}, 0
	leave, err := p.enter(ctx, s, r)
	if err != nil {
		return nil, err
	}
	defer leave()
	for _, c := range r.ContainerRequests {
		cards, err := p.usable(s, c.DevicesIds, true)
		if err == nil {
			err = s.requireConnected(cards)
		}
		if err != nil {
			return nil, err
		}
		if why := allocate.Unusable(s.Inventory, cards); why != "" {
			p.log.WarnContext(ctx, "a container gets LPUs that its program may not be able to use", "devices", c.DevicesIds, "reason", why)
		}
		answer.ContainerResponses = append(answer.ContainerResponses, p.edits(s, cards))
		handedOut += len(cards)
	}
	p.metrics.allocated.Add(float64(handedOut)) // all of them or, after an error, none
	return answer, nil
}

// enter asks the gate of the node for the LPUs of a request, which may have become
// another program's since the state was made.
func (p *Plugin) enter(ctx context.Context, s *state, r *api.AllocateRequest) (leave func(), err error) {
	if p.Node.Gate == nil {
		return func() {}, nil
	}
	var addresses []pci.Address
	for _, c := range r.ContainerRequests {
		cards, _ := s.lpus(c.DevicesIds) // those that are not known are refused after this
		for _, card := range cards {
			addresses = append(addresses, s.Inventory.LPUs[card].Address)
		}
	}
	leave, err = p.Node.Gate.Enter(ctx, addresses)
	if err == nil {
		return leave, nil
	}
	code := codes.Unavailable
	if _, refused := errors.AsType[*owner.Refusal](err); refused {
		code = codes.FailedPrecondition
	}
	return nil, status.Errorf(code, "LPUs are not handed out: %v", err)
}

// usable returns the positions of LPUs in the inventory, or an error if one of them
// cannot be handed out at this moment; again says that the container does not have them
// yet.
func (p *Plugin) usable(s *state, ids []string, anew bool) ([]int, error) {
	cards, unknown := s.lpus(ids)
	if len(unknown) > 0 {
		return nil, status.Errorf(codes.NotFound, "there is no device %s on this node", strings.Join(unknown, ", "))
	}
	if len(cards) != len(ids) {
		return nil, status.Errorf(codes.InvalidArgument, "a device stands twice in %s", strings.Join(ids, ", "))
	}
	if err := p.fresh(s); err != nil {
		return nil, err
	}
	for _, card := range cards {
		if err := s.refuse(card, anew); err != nil {
			return nil, err
		}
	}
	return cards, nil
}

// fresh returns an error if the machine was read too long ago to hand out anything.
func (p *Plugin) fresh(s *state) error {
	if err := s.Fresh(p.Node.Now(), node.MaxAge); err != nil {
		return status.Errorf(codes.Unavailable, "LPUs are not handed out: %v", err)
	}
	return nil
}

// refuse returns an error if the LPU at this position of the inventory cannot be handed
// out at this moment. One that is cordoned or another program's is refused only to those
// who do not have it yet.
func (s *state) refuse(card int, anew bool) error {
	l := &s.Inventory.LPUs[card]
	withheld := s.runtime.Withheld(s.options.OnCDIOff) // of now: the snapshot may be from before
	for _, d := range s.Devices {
		if d.Name != l.Name {
			continue
		}
		why := d.Reason()
		if len(withheld) > 0 {
			why = withheld[0].Message
		}
		if len(withheld) > 0 || !d.Healthy || d.Withheld || !l.Usable || anew && (d.Cordoned != nil || d.Elsewhere) {
			return status.Errorf(codes.FailedPrecondition, "%s (%s) is not handed out: %s", d.Name, d.ID, why)
		}
	}
	return nil
}

// requireConnected returns an error if the LPUs of a container have to be connected, and
// are not. The kubelet need not have asked for a preferred allocation: it does not where
// it has no choice left, as with NUMA nodes.
func (s *state) requireConnected(cards []int) error {
	if !s.options.RequireConnected || len(cards) < 2 {
		return nil
	}
	if _, pieces := s.Fabric.Order(cards); pieces > 1 || !s.Fabric.Cabled() {
		return status.Errorf(codes.FailedPrecondition, "%d LPUs are not handed out: they are not connected to each other", len(cards))
	}
	return nil
}

// edits is what a container gets with LPUs: in ring order, so that it need not find out
// how they are cabled, and with a ring table that says the same.
func (p *Plugin) edits(s *state, cards []int) *api.ContainerAllocateResponse {
	inv := s.Inventory
	lpus, variables := cdi.Container(inv, s.Fabric, cards)
	response := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	var e cdi.Edits
	if s.options.strategy(s.runtime) == CDI {
		for _, l := range lpus {
			response.CdiDevices = append(response.CdiDevices, &api.CDIDevice{Name: s.options.Spec.Options.Kind + "=" + cdi.AddressName(l.Address)})
		}
	} else {
		ordered, _ := s.Fabric.Order(cards)
		e = cdi.PartOf(inv, ordered, cdi.Options{})
	}
	p.mark(s, cards, cdi.MarkRingTables)
	if t := p.putTable(s, cards); t != nil {
		e.Mounts = append(e.Mounts, t.Mount())
	}
	for _, n := range e.Nodes {
		response.Devices = append(response.Devices, &api.DeviceSpec{ContainerPath: n.Path, HostPath: n.Path, Permissions: cdi.NodePermissions})
	}
	for _, m := range e.Mounts {
		response.Mounts = append(response.Mounts, &api.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: true})
	}
	for _, v := range append(e.Env, variables...) {
		response.Envs[v.Name] = v.Value
	}
	return response
}

// putTable puts the ring table in place for a container with LPUs. It returns nil if
// there is none. A container starts without it too.
func (p *Plugin) putTable(s *state, cards []int) *cdi.RingTable {
	t := cdi.RingTableOf(s.Inventory, cards)
	if t == nil {
		return nil
	}
	err := t.Write(s.options.Spec.File.Root)
	if err == nil {
		p.tableFault.Store("")
		return t
	}
	if text := err.Error(); p.tableFault.Swap(text) != text { // it is tried again and again
		p.log.Warn("a container gets no ring table of its own", "error", err)
	}
	return nil
}

// mark notes with a function of package cdi what a container has its ring table by.
func (p *Plugin) mark(s *state, cards []int, note func(host.Root, *discovery.Inventory, []int) error) {
	if err := note(s.options.Spec.File.Root, s.Inventory, cards); err != nil {
		p.log.Warn("it will not be seen if a container loses its ring table", "error", err)
	}
}

// putTables puts the ring tables in place again that containers of pods have. The kubelet
// starts a container after a boot by what it was answered before, and a boot empties
// /run.
func (p *Plugin) putTables(holders map[string]container) {
	s := p.state.Load()
	ids := map[container][]string{}
	for id, by := range holders {
		ids[by] = append(ids[by], id)
	}
	for _, list := range ids {
		if cards, unknown := s.lpus(list); len(unknown) == 0 {
			p.putTable(s, cards)
		}
	}
}

// PreStartContainer checks that LPUs can still be handed out, and resets nothing: the
// kubelet also calls it before each restart, and another pod may use the same card by its
// other functions. A cordon does not matter: the container has them.
func (p *Plugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	s := p.state.Load()
	cards, err := p.usable(s, r.DevicesIds, false)
	if err == nil {
		p.mark(s, cards, cdi.MarkStart)
		p.putTable(s, cards)
	}
	return &api.PreStartContainerResponse{}, err
}
