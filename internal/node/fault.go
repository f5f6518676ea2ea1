package node

// LatestFault is the text of an error that was there at the latest look; "" if none was.
// With it a daemon that looks again and again logs an error once, until it is another
// one, or was over.
type LatestFault string

// IsNew takes the error of the next look. It returns false for nil, and for one that says
// the same as before.
func (f *LatestFault) IsNew(err error) bool {
	before := *f
	*f = ""
	if err != nil {
		*f = LatestFault(err.Error())
	}
	return err != nil && *f != before
}
