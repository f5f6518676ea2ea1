// Package plugin is a Kubernetes device plugin for LPUs (kubelet API v1beta1): it
// registers with the kubelet again and again, lists the LPUs with their health, prefers
// connected ones and hands them out.
//
// [Plugin] answers the kubelet's calls from memory. What is in the machine reaches it by
// [Plugin.Update], which no call waits for: it makes a [node.Snapshot] and, of that, the
// list of devices. [Server] keeps the plugin registered.
//
// # Invariants
//
// The plugin holds these at any time, whatever the kubelet, the machine or an
// administrator does. The tests of each have its number in their name (TestInvariant1...
// to TestInvariant18...).
//
// Registration, in server.go:
//
//  1. It serves before it registers, and says which calls it wants when it is asked for
//     its options (TestInvariant1OptionsComeFromThePlugin).
//  2. A name is listed as healthy or handed out only while the CDI spec on disk resolves
//     it to the right nodes; the spec is written only where it does not
//     (TestInvariant2SpecIsThereBeforeAnyName, TestInvariant2SpecThatCannotBeWritten,
//     TestInvariant2Reload, TestInvariant2Cancelled,
//     TestInvariant2SpecIsWrittenOnlyWhereNeeded).
//  3. Each registration has a socket of a new name; our sockets that no process serves
//     any more are removed (TestInvariant3RestartsOfTheKubelet,
//     TestInvariant3DeadSocketsAreRemoved, TestInvariant3NewSocketsAreNotTakenForDead).
//  4. At most one registration is under way or alive
//     (TestInvariant4OneRegistrationAtATime).
//  5. It registers again when kubelet.sock is another file, when its own socket is gone,
//     when the stream ends and when none is opened; inotify is not the only way to
//     notice (TestInvariant5SignsOfARestart).
//  6. It waits for a kubelet that is absent, refuses or hangs, with a growing backoff
//     and one line of log for each new reason (TestInvariant6KubeletIsNotThere).
//  7. When it ends, its socket is removed and the spec stays; a reload keeps the stream
//     (TestInvariant7EndLeavesTheSpec, TestInvariant7EndAtAnyMoment,
//     TestInvariant7ReloadKeepsTheStream).
//  8. Two instances may overlap: no state is kept of what was handed out, and where the
//     kubelet cannot tell instances apart the new one waits for the end of the old one.
//     The list that counts is that of the one that stays, and one that starts asks the
//     other for what it cannot know (TestInvariant8Upgrade,
//     TestInvariant8TheLastListIsThatOfTheOneThatStays, TestInvariant8Recall).
//
// The list of devices, made in package node:
//
//  9. A device id is made of the PCI address and has at most 63 characters, which the
//     kubelet documents as its limit (deviceplugin/v1beta1/api.proto, Device.ID): it is
//     the same after a reboot (TestInvariant9IDsAreThoseOfTheSlot).
//  10. The list is in ring order, is sent at once and then only when it changes
//     (TestInvariant10ListIsInRingOrder, TestInvariant10SendsOnlyWhatChanged).
//  11. An LPU that is gone stays listed as unhealthy; the others keep their index and
//     their neighbours (TestInvariant11LostLPUStaysUnhealthy,
//     TestInvariant11LostLPUKeepsIndexAndRing).
//  12. No LPU is a valid state: it registers an empty list and writes no spec
//     (TestInvariant12NoLPUs).
//  13. Health has hysteresis in both directions and recovers by itself; the log says why
//     an LPU is unhealthy (TestInvariant13HealthComesBackAndIsExplained, and
//     TestHysteresis in package discovery).
//  14. Nothing is healthy, preferred or handed out before the first scan; unknown health
//     keeps the last value, that of another instance at the start, or the first list
//     waits (TestInvariant14NothingBeforeTheFirstLook,
//     TestInvariant14TheFirstListIsHeldBack, TestInvariant14OfTwoInstances).
//
// The calls, in calls.go:
//
//  15. A preferred allocation has exactly as many devices as were asked for, all of them
//     available, with all that must be included, and is the same for the same input; ids
//     that it does not know do no harm, and Allocate would refuse none of them
//     (TestInvariant15Preferred, TestInvariant15NothingPreferredIsRefused,
//     TestInvariant15NothingIsPreferredOfAnOldSnapshot).
//  16. Allocate checks existence, health and the age of the snapshot again, hands out all
//     devices or none, in ring order, and answers the same when it is asked again; it
//     refuses unconnected LPUs where they have to be connected (TestInvariant16Allocate,
//     TestInvariant16Unconnected).
//  17. PreStartContainer may be called any number of times and resets no LPU
//     (TestInvariant17PreStart).
//  18. No call waits for the machine, the disk or a lock that is held meanwhile
//     (TestInvariant18NoCallWaitsForTheMachine, TestManyClients).
package plugin
