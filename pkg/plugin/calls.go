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

	"github.com/hyperaccel/lpuctl/pkg/allocate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/owner"
)

// GetDevicePluginOptions says which optional calls the kubelet should make. The kubelet asks this and ignores the options in
// the Register call.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	prestart := p.state.Load().options.PreStart
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: prestart}, nil
}

// ListAndWatch sends the list of devices at once and then whenever it changes. It always sends the latest list: a slow
// kubelet misses lists in between, and never the last one.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		s := p.state.Load()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: s.devices}); err != nil {
			return err
		}
		select {
		case <-s.changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// lpus finds LPUs by their ids: positions in the inventory, in ascending order and without duplicates, and the ids that no
// LPU has.
func (s *state) lpus(ids []string) (cards []int, unknown []string) {
	for _, id := range ids {
		if i, ok := s.node.Cards[id]; ok {
			cards = append(cards, i)
		} else {
			unknown = append(unknown, id)
		}
	}
	slices.Sort(cards)
	return slices.Compact(cards), unknown
}

// GetPreferredAllocation picks LPUs by the rule of [ring.Fabric.Choose]. It logs each decision with all that is needed to
// make it again. It ignores available ids that it does not know, as long as there are enough others.
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
			refusable = append(refusable, s.node.Inventory.LPUs[card].Name)
		}
		return err != nil
	})
	d, err := allocate.Decide(s.node.Inventory, s.node.Fabric, allocate.Wish{Size: int(r.AllocationSize), Free: available, Must: must})
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "cannot choose: %v%s", err, notUsable(refusable))
	}
	outcome, connected := "unknown", any(nil) // not d.Connected itself: a text log would show an address
	if d.Connected != nil {                   // there is a ring table
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
		ids = append(ids, cdi.AddressName(s.node.Inventory.LPUs[card].Address))
	}
	return ids, nil
}

// unhealthy are the names of the LPUs that are: their cables do not count.
func (s *state) unhealthy() []string {
	names := []string{}
	for _, l := range s.node.Inventory.LPUs {
		if l.Health == discovery.Unhealthy {
			names = append(names, l.Name)
		}
	}
	return names
}

// notUsable names LPUs that the kubelet takes for available and that are not, for the end of a message.
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

// Allocate hands out LPUs: all of a request or, if one of them cannot be handed out, none.
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
		answer.ContainerResponses = append(answer.ContainerResponses, edits(s, cards))
		handedOut += len(cards)
	}
	p.metrics.allocated.Add(float64(handedOut)) // all of them or, after an error, none
	return answer, nil
}

// enter asks the gate of the node for the LPUs of a request, which may have become another program's since the state was made.
func (p *Plugin) enter(ctx context.Context, s *state, r *api.AllocateRequest) (leave func(), err error) {
	if p.Node.Gate == nil {
		return func() {}, nil
	}
	var addresses []discovery.Address
	for _, c := range r.ContainerRequests {
		cards, _ := s.lpus(c.DevicesIds) // those that are not known are refused after this
		for _, card := range cards {
			addresses = append(addresses, s.node.Inventory.LPUs[card].Address)
		}
	}
	leave, err = p.Node.Gate.Enter(ctx, addresses)
	refusal, refused := errors.AsType[*owner.Refusal](err)
	switch {
	case refused:
		return nil, status.Errorf(codes.FailedPrecondition, "LPUs are not handed out: %v", refusal)
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "LPUs are not handed out: %v", err)
	}
	return leave, nil
}

// usable returns the positions of LPUs in the inventory, or an error if one of them cannot be handed out at this moment; anew says that
// the container does not have them yet.
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
	if err := s.node.Fresh(p.Node.Now(), node.MaxAge); err != nil {
		return status.Errorf(codes.Unavailable, "LPUs are not handed out: %v", err)
	}
	return nil
}

// refuse returns an error if the LPU at this position of the inventory cannot be handed out at this moment. One that is cordoned or another
// program's is refused only to those who do not have it yet.
func (s *state) refuse(card int, anew bool) error {
	l := &s.node.Inventory.LPUs[card]
	withheld := s.runtime.Withheld(s.options.OnCDIOff) // of now: the snapshot may be from before
	for _, d := range s.node.Devices {
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

// requireConnected returns an error if the LPUs of a container have to be connected, and are not. The kubelet need not have asked
// for a preferred allocation: it does not where it has no choice left, as with NUMA nodes.
func (s *state) requireConnected(cards []int) error {
	if !s.options.RequireConnected || len(cards) < 2 {
		return nil
	}
	if _, pieces := s.node.Fabric.Order(cards); pieces > 1 || !s.node.Fabric.Cabled() {
		return status.Errorf(codes.FailedPrecondition, "%d LPUs are not handed out: they are not connected to each other", len(cards))
	}
	return nil
}

// edits is what a container gets with LPUs: in ring order, so that it need not find out how they are cabled.
func edits(s *state, cards []int) *api.ContainerAllocateResponse {
	lpus, variables := cdi.Container(s.node.Inventory, s.node.Fabric, cards)
	response := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	var e cdi.Edits
	if s.options.strategy(s.runtime) == CDI {
		for _, l := range lpus {
			response.CdiDevices = append(response.CdiDevices, &api.CDIDevice{Name: s.options.Kind + "=" + cdi.AddressName(l.Address)})
		}
	} else {
		e = cdi.EditsOf(lpus, cdi.Options{})
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

// PreStartContainer checks that LPUs can still be handed out, and resets nothing: the kubelet also calls it before each
// restart, and another pod may use the same card by its other functions. A cordon does not matter: the container has them.
func (p *Plugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	_, err := p.usable(p.state.Load(), r.DevicesIds, false)
	return &api.PreStartContainerResponse{}, err
}
