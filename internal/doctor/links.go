package doctor

import (
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Link is a part of the way from the slot into the container.
type Link string

// The links.
const (
	Config   Link = "config"
	Card     Link = "card"
	Driver   Link = "driver"
	Node     Link = "device-file"
	Health   Link = "health"
	Cabling  Link = "cabling"
	Owner    Link = "owner" // and cordons
	Spec     Link = "spec"
	Runtime  Link = "runtime"
	Security Link = "security" // SELinux and AppArmor
	DevChar  Link = "dev-char" // the links in /dev/char
	Memlock  Link = "memlock"
	Leases   Link = "leases"
	Kubelet  Link = "kubelet"
	DRA      Link = "dra"
	SelfTest Link = "self-check"
	Units    Link = "units"
)

// Links returns the links in the order of the way.
func Links() []Link {
	return []Link{
		Config, Card, Driver, Node, Health, Cabling, Owner, Spec, Runtime, Security, DevChar, Memlock, Leases, Kubelet, DRA,
		SelfTest, Units,
	}
}

// linkOf returns the link that a finding of an inventory is about. What is not listed is
// about the health of a card.
func linkOf(id finding.ID) Link {
	switch id {
	case finding.Absent, finding.Gone, finding.AmbiguousModel, finding.CardWithoutLPU, finding.ModelWithoutIDs, finding.OddPCIEntry,
		finding.SameCard, finding.UnreadableClass, finding.UnreadableFunction, finding.RecoveryShell:
		return Card
	case finding.NoDriver, finding.WrongDriver, finding.PassedThrough, finding.NotReady, finding.Rebound, finding.ResetBehindDriver:
		return Driver
	case finding.BadNode, finding.NoNode, finding.NodeForeign, finding.NodeMismatch, finding.NodeMissing, finding.SharedNode:
		return Node
	case finding.RingAbsentCard, finding.RingAllZero, finding.RingChain, finding.RingConflict, finding.RingCount, finding.RingDegree,
		finding.RingDuplicateKey, finding.RingEmpty, finding.RingFileOrder, finding.RingHyperdex, finding.RingIsolated, finding.RingKey,
		finding.RingKept, finding.RingLinkTwice, finding.RingOneSided, finding.RingOrder, finding.RingSelfLink, finding.RingSeveral,
		finding.RingSyntax, finding.RingTooLarge, finding.RingTrailing, finding.RingType, finding.RingUnknownCard,
		finding.RingUnreadable, finding.RingUnsafe, finding.RingTableDetached, finding.RingTableStale:
		return Cabling
	case finding.Cordoned, finding.CordonsUnreadable, finding.GivenTwice, finding.HeldByOther, finding.OtherPlugin,
		finding.OwnerDRA, finding.OwnerPlugin, finding.OwnerUnknown, finding.OwnerUnsettled, finding.BesideKubernetes:
		return Owner
	case finding.LeaseUnclear, finding.LeaseHookFailed, finding.UsersHidden:
		return Leases
	case finding.DevCharMissing:
		return DevChar
	case finding.SELinuxDenies, finding.AppArmorDenies:
		return Security
	case finding.MountStalled:
		return Spec
	}
	return Health
}

// suspects returns the warnings that may bring an error about: if a card is not known as
// an LPU, those behind it get other numbers.
func suspects(id finding.ID) []finding.ID {
	switch id {
	case finding.NoSpec, finding.NodeMissing, finding.NodeWrong, finding.SetWrong, finding.DeviceMissing, finding.NotInSpec:
		return []finding.ID{finding.CardWithoutLPU, finding.ModelWithoutIDs, finding.UnreadableFunction}
	case finding.SharedNode:
		return []finding.ID{finding.SameCard}
	}
	return nil
}

// causes returns the links of which one that is broken brings a finding about. nil: it
// never follows from another.
func causes(id finding.ID) []Link {
	switch id {
	case finding.RingCount, finding.RingUnknownCard, finding.RingAbsentCard:
		return []Link{Card}
	case finding.NodeMissing, finding.NodeWrong, finding.NodeNumbers, finding.NodeNotDevice, finding.SetWrong, finding.DeviceMissing,
		finding.NotInSpec, finding.StaleDevice, finding.LeftOut, finding.SpecDrift:
		return []Link{Card, Driver, Node, Cabling}
	case finding.RingTableBroken:
		return []Link{Cabling}
	case finding.CDIUnknown:
		return []Link{Runtime}
	case finding.CDIOff:
		return []Link{Runtime}
	case finding.PluginUnregistered:
		return []Link{Owner, Security}
	case finding.DRAUnregistered:
		return []Link{Security}
	}
	return nil
}
