# decode.csv of build/decode to decode.svg: fraction of a plain read, 1 thread, one page a sequence.
set datafile separator ","
set terminal svg size 900,420
set output "decode.svg"
set style data histogram
set style fill solid 0.7
set yrange [0:1.1]
set ylabel "fraction of a plain read"
set key outside
set grid ytics
only(k) = sprintf("< awk -F, '$6 == \"%s\" && $7 == 1 && $4 == $5' decode.csv", k)
kernels = system("awk -F, 'NR > 1 && $6 != \"read\" { print $6 }' decode.csv | sort -ru")
plot for [k in kernels] only(k) \
         using 10:xtic(sprintf("%s g%d", stringcolumn(1), column(2) / column(3))) title k
