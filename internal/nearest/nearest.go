// Package nearest finds the known word that is nearest to a mistyped one.
package nearest

// Word returns the candidate that is nearest to what was typed. It returns "" if for each
// candidate more than about a third of the longer word would have to change.
func Word(typed string, candidates []string) string {
	best, bestDistance := "", -1
	for _, c := range candidates {
		d := distance(typed, c)
		if d*3 <= max(len(typed), len(c))+2 && (bestDistance < 0 || d < bestDistance) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the least number of insertions, deletions and replacements of bytes that
// turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
