"""Spark's built-in functions by kind, where the kind decides what a change can be computed from."""

from __future__ import annotations

AGGREGATES = frozenset(
    """any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch
    covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value
    listagg max max_by mean median min min_by mode percentile percentile_approx percentile_cont
    percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum var_pop var_samp
    variance""".split()
)

GENERATORS = frozenset(
    """collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer
    sql_keywords stack variant_explode variant_explode_outer""".split()
)

WINDOWS = frozenset(
    "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number window "
    "session_window window_time".split()
)

VOLATILE = frozenset(
    """assert_true curdate current_catalog current_database current_date current_schema
    current_time current_timestamp current_timezone current_user input_file_block_length
    input_file_block_start input_file_name java_method localtimestamp
    monotonically_increasing_id now raise_error rand randn random randstr reflect session_user
    shuffle spark_partition_id try_reflect uniform unix_timestamp user uuid version""".split()
)
"""Values that change from call to call or from session to session, or that reach outside."""
