package main

func internalFeatures() []mutation {
	return []mutation{
		{
			name:    "labels go while a driver is loaded again",
			fix:     "m.told[l.Address].take(l)",
			without: "card{}.take(l)",
			test:    "TestLabelsStay",
		},
		{
			name:    "a card that was gone is taken for the one before",
			fix:     "\tm.told = told\n",
			without: "\tif m.told == nil {\n\t\tm.told = told\n\t}\n",
			test:    "TestLabelsStay",
		},
		{
			name:    "a driver has the version of the one before",
			fix:     `c.version, c.shell = "", ""`,
			without: "",
			test:    "TestLabelsStay",
		},
		{
			name:    "a feature file expires",
			fix:     "left > p.Lifetime/2 && ",
			without: "left > 0 && ",
			test:    "TestFeatureFileInTime",
		},
		{
			name:    "a clock that was set back keeps labels for days",
			fix:     " && left <= p.Lifetime+slack",
			without: "",
			test:    "TestFeatureFileInTime",
		},
		{
			name:    "two instances take the feature file from each other",
			fix:     "(there == body || !outdated)",
			without: "there == body",
			test:    "TestFeatureFileOfTwo",
		},
		{
			name:    "a feature directory that was made anew is not noticed",
			fix:     "\tif !f.inReach {\n",
			without: "\tif true {\n",
			test:    "TestFeatureDirectoryCutOff",
		},
		{
			name:    "a feature directory that was never there ends serve again and again",
			fix:     "f.dir, f.inReach = dir, err == nil",
			without: "f.dir, f.inReach = dir, true",
			test:    "TestFeatureDirectoryCutOff",
		},
	}
}
