package main

func internalDoctor() []mutation {
	return []mutation{
		{
			name:    "what could not be looked at is called well",
			fix:     "case len(s.Unseen) > 0:",
			without: "case false:",
			test:    "TestStates",
		},
		{
			name:    "one fault that follows folds those that do not",
			fix:     "f.Severity != finding.Note && !because(causes(f.ID))",
			without: "f.Severity != finding.Note && !because(causes(f.ID)) && from == nil",
			test:    "TestStates",
		},
		{
			name:    "a check that hangs holds up the others",
			fix:     "\tcase <-ctx.Done():\n\t}\n\tselect {",
			without: "\tcase <-make(chan int):\n\t}\n\tselect {",
			test:    "TestALinkThatHangs",
		},
		{
			name:    "a command about an LPU that is in use is run",
			fix:     "fix.Kept = inUse(f.Subject)",
			without: "_ = inUse",
			test:    "TestFixes",
		},
		{
			name:    "the label of containers counts as one that SELinux denies",
			fix:     "ok && of != containerFileType {\n\t\t\t\tdenied",
			without: "ok {\n\t\t\t\tdenied",
			test:    "TestSELinux",
		},
		{
			name:    "a label that cannot be seen is well",
			fix:     "if errors.Is(err, fs.ErrPermission) {\n\t\tr.Unseen",
			without: "if false {\n\t\tr.Unseen",
			test:    "TestSELinux",
		},
		{
			name:    "a device plugin as any container makes its socket",
			fix:     "typeIn(string(label)) == containerType",
			without: "typeIn(string(label)) == \"\"",
			test:    "TestSELinux",
		},
		{
			name:    "a profile of AppArmor that is not loaded denies",
			fix:     "if loaded[d.profile] {",
			without: "if true {",
			test:    "TestAppArmor",
		},
		{
			name:    "a missing link in /dev/char is no matter to runc 1.1.5",
			fix:     `runc.Within("1.1.3-1.1.7")`,
			without: `runc.Within("1.1.3-1.1.4")`,
			test:    "TestDevChars",
		},
		{
			name:    "the limit of memory of root counts",
			fix:     "if !counts {\n\t\t\t\tbytes = math.MaxUint64\n\t\t\t}\n",
			without: "_ = counts\n",
			test:    "TestMemlocks",
		},
		{
			name:    "to look whether the arbiter listens starts it",
			fix:     "listening, unseen := s.Root.Listening()",
			without: "_, _ = host.Listens(socket)\n\tlistening, unseen := s.Root.Listening()",
			test:    "TestLeasing",
		},
		{
			name:    "a user who may not lease takes leases for well",
			fix:     "may(socket); errors.Is(err, fs.ErrPermission)",
			without: "may(socket); err != nil && false",
			test:    "TestLeasing",
		},
		{
			name:    "a plugin that the kubelet does not list is well",
			fix:     "case listed == 0 && free > 0:",
			without: "case listed < 0:",
			test:    "TestRegistration",
		},
		{
			name:    "who may not ask the kubelet takes it for away",
			fix:     "case isDenied(why):",
			without: "case false:",
			test:    "TestKubeletThatMayNotBeAsked",
		},
		{
			name:    "a socket that the DRA driver has left counts",
			fix:     "listens || answers, cmp",
			without: "true || answers, cmp",
			test:    "TestDriving",
		},
		{
			name:    "a prepared claim without its CDI file is well",
			fix:     "\t\t\tr.lookForFile(c.String(), cdi.ClaimFile(node.SpecDir, c.UID), runs)\n",
			without: "\t\t\t_ = cdi.ClaimFile(c.UID, \"\")\n",
			test:    "TestDriving",
		},
		{
			name:    "what the self-check found is not said",
			fix:     "if answer.Reason != nil {",
			without: "if false {",
			test:    "TestSelfCheckIsAskedWhereAKubeletIs",
		},
		{
			name:    "an enabled service that has ended is well",
			fix:     `strings.HasSuffix(name, ".service") && !u.Ran`,
			without: `strings.HasSuffix(name, ".service") && false`,
			test:    "TestOwnUnits",
		},
		{
			name:    "a refresh that was asked for a moment ago is overdue",
			fix:     "time.Since(info.ModTime()) > refreshAfter:",
			without: "true:",
			test:    "TestOwnUnits",
		},
		{
			name:    "a driver of another kernel is enough",
			fix:     `case name != "" && of == release:`,
			without: `case name != "":`,
			in:      "Host.lookAtModule",
			test:    "TestBefore",
		},
		{
			name:    "a card that is not known as an LPU is no cause of what is wrong with the spec",
			fix:     "s.State == Warned && slices.ContainsFunc(suspects(f.ID), s.Findings.Has)",
			without: "false",
			test:    "TestSuspects",
		},
		{
			name:    "a machine without an LPU has a card that is well",
			fix:     "r.Absent, r.NoLPU = ",
			without: "r.Says, r.NoLPU = ",
			test:    "TestNoLPU",
		},
		{
			name:    "a card is lost, and doctor names the spec",
			fix:     "return []finding.ID{finding.CardWithoutLPU, ",
			without: "return []finding.ID{",
			test:    "TestBroken", pkg: "test/broken",
		},
	}
}
