package main

func internalDraClaim() []mutation {
	return []mutation{
		{
			name:    "a claim that was only started keeps its LPUs",
			fix:     "r.State == completed && sameBoot",
			without: "sameBoot",
			test:    "TestKilledAtEachStep",
		},
		{
			name:    "a claim of an earlier boot keeps its LPUs",
			fix:     `a == b || a == "" || b == ""`,
			without: "true",
			test:    "TestRestore",
		},
		{
			name:    "a claim is given back record first",
			fix:     "{cdi.ClaimFile(s.SpecDir, uid), record.Aside(), record.Path}",
			without: "{record.Path, record.Aside(), cdi.ClaimFile(s.SpecDir, uid)}",
			test:    "TestKilledAtEachStep",
		},
		{
			name:    "a claim is completed before it has its file",
			fix:     "\tif err := s.write(r); err != nil {\n\t\treturn err\n\t}\n\tif err := s.render",
			without: "\tr.State = completed\n\tif err := s.write(r); err != nil {\n\t\treturn err\n\t}\n\tif err := s.render",
			test:    "TestKilledAtEachStep",
		},
		{
			name:    "a failed prepare keeps its LPUs recorded",
			fix:     "err = errors.Join(err, s.remove(r.UID))",
			without: "err = errors.Join(err)",
			test:    "TestDirectoriesThatCannotBeWritten",
		},
		{
			name:    "two instances prepare at the same time",
			fix:     `return filelock.Hold(ctx, filepath.Join(s.Dir, "claims.json"))`,
			without: "return filelock.Hold(ctx, filepath.Join(s.Dir, fmt.Sprint(time.Now())))",
			test:    "TestManyAtOnce",
		},
		{
			name:    "a prepare that the kubelet has given up goes on",
			fix:     "\tif err := ctx.Err(); err != nil {",
			without: "\tif err := error(nil); err != nil {",
			test:    "TestRefusals",
		},
		{
			name:    "an LPU is given to two claims when the record of one is lost",
			fix:     "\t\t\tf.adopted[uid] = r\n",
			without: "\t\t\t_ = r\n",
			test:    "TestBadRecords",
		},
		{
			name:    "temporary files of a killed instance stay",
			fix:     "\ts.sweep(s.SpecDir)\n",
			without: "",
			test:    "TestKilledAtEachStep",
		},
		{
			name:    "fields of a later version are lost",
			fix:     "\t\tr.rest = have.rest\n",
			without: "\t\tr.rest = nil\n",
			test:    "TestBadRecords",
		},
		{
			name:    "a claim is prepared though its LPUs turn out to be another's",
			fix:     "if err := s.Confirm(ctx, r.Members()); err != nil {",
			without: "if err := error(nil); err != nil {",
			test:    "TestConfirm",
		},
		{
			name:    "an old word of the kubelet makes a claim prepared",
			fix:     "s.holds(have) && !f.unconfirmed[uid]",
			without: "s.holds(have)",
			test:    "TestStaleWord",
		},
		{
			name:    "a claim that is prepared is refused, and loses its files",
			fix:     "f.of(r.UID).sameLPUs(r)",
			without: "f.of(r.UID).same(r)",
			test:    "TestAskedAgain",
		},
		{
			name:    "a claim that is prepared is asked again whether its LPUs may be given",
			fix:     "\tif !s.has(f, r) {\n",
			without: "\tif true {\n",
			test:    "TestAskedAgain",
		},
		{
			name:    "an LPU is given twice when all files of a claim are lost",
			fix:     "\t\tif f.records[uid] != nil || f.adopted[uid] != nil {\n",
			without: "\t\tif true {\n",
			test:    "TestAnyOneIsEnough",
		},
		{
			name:    "a claim that another instance gave back is there again",
			fix:     "f.unconfirmed[uid] = m.at.Sub(missed[uid]) < confirmAfter",
			without: "f.unconfirmed[uid] = false",
			test:    "TestLostFiles",
		},
		{
			name:    "what a driver knows of a claim is lost with its files",
			fix:     "\t\t\tf.adopted[uid] = l.record.clone()\n",
			without: "",
			test:    "TestLostFiles",
		},
		{
			name:    "a record that is lost stays so until the driver starts again",
			fix:     "return len(f.adopted) > 0 ||",
			without: "return",
			test:    "TestLostFiles",
		},
		{
			name:    "a claim that is asked for once more counts as one with its ring table",
			fix:     "\tif s.has(f, r) {\n\t\treturn\n",
			without: "\tif false {\n\t\treturn\n",
			test:    "TestLostTables",
		},
		{
			name:    "ring tables of claims that are gone are not missed",
			fix:     "!cdi.HasRingTables(s.Root, have, now)",
			without: "false && have == nil && now == nil",
			test:    "TestRingTableOfAClaim",
		},
		{
			name:    "a record is put aside that alone says that there is a claim",
			fix:     "b.why.Unusable && (known != nil || s.memory.hasHeard())",
			without: "b.why.Unusable",
			test:    "TestBadRecords",
		},
	}
}
